// What `rekindle knowledge export --as table` writes. The schema is rekindle.table/1.

export interface InstallerTable {
  schema: "rekindle.table/1";
  rekindle: string;
  observed_at: string;
  /** What stands in texts for the card's name and the driver that was asked for. */
  marks: { card: string; driver: string };
  /** Card names in small letters: the number of a class. */
  names: Record<string, number>;
  /** Device ids of NVIDIA, such as "1b06": the number of a class. */
  pci: Record<string, number>;
  /** By system, by Python ("": not said): the number of a list of steps. */
  classes: Record<"windows" | "linux", Record<string, number>>[];
  /** Drivers, rising, each with the row that holds from it on; the first, "", is for a driver that is not known. */
  steps: [driver: string, row: number][][];
  rows: TableRow[];
}

export interface TableRow {
  /** "official-wheel", "conda-forge", "source-build", "none" … */
  route: string;
  torch?: string;
  cuda?: string;
  python?: string;
  /** pip's --index-url; without it the usual index. */
  index?: string;
  /** What pip is asked for. Without them nothing is ready-made: `rekindle plan` says what to do. */
  pins?: string[];
  /** What pip installs before, from the usual index. */
  first?: string;
  driver?: string;
  loses?: string[];
  settings?: string[];
  change?: string;
}
