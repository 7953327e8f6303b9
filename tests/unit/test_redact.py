"""What must not travel, in the shapes people's logs really have."""

from __future__ import annotations

import pytest

from rekindle.core import console
from rekindle.core.redact import redact, secrets, without_secrets
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.review.review import shown

A = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
HEX = "0123456789abcdef0123456789abcdef01234567"

# The text, and what of it is the secret.
SHAPES = [
    (f"https://conda.example/t/jo-{A}/private/linux-64", A),
    ("https://jane:pa55word@mirror.example/simple", "pa55word"),
    ("remote: fetching from git+http://jane:pa55word@\n mirror.example/simple", "pa55word"),
    (f"https://{A}@github.com/x/y.git", A),
    ("redis://:hunter22@cache:6379/0", "hunter22"),
    (f"https://hooks.slack.com/services/T000/B000/{A}", A),
    (f"https://discord.com/api/webhooks/123456789012345678/{A}", A),
    (f"https://x.blob.core.windows.net/c/f.whl?sv=2022-11-02&sp=r&sig={A}%3D", A),
    (f"https://s3.amazonaws.com/b/k?X-Amz-Credential={A}&X-Amz-Signature={HEX}", HEX),
    (f"https://storage.googleapis.com/b/k?GoogleAccessId=x&Signature={A}", A),
    (f"https://civitai.com/api/download/1?token={HEX[:32]}", HEX[:32]),
    (f"https://host/v1?api_key={A}&x=1", A),
    (f"https://maps.googleapis.com/x?key=AIza{A}", A),
    (f"got ghp_{A}", A),
    (f"github_pat_{A}", A),
    (f"glpat-{A}", A),
    (f"hf_{A[:34]}", A[:34]),
    (f"xoxb-1234567890-{A}", A),
    (f"sk-proj-{A}", A),
    (f"sk-ant-api03-{A}", A),
    (f"sk_live_{A}", A),
    ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    ("ASIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    (f"nvapi-{A}", A),
    (f"ya29.{A}", A),
    (f"GOCSPX-{A}", A),
    (f"npm_{A}", A),
    (f"pypi-AgEIcHlwaS5vcmc{A}{A}", A),
    (f"dckr_pat_{A}", A),
    (f"SG.{A[:22]}.{A}", A),
    (f"shpat_{HEX}", HEX),
    (f"dop_v1_{HEX}{HEX}", HEX),
    (f"hvs.{A}", A),
    (f"r8_{A}", A),
    (f"gsk_{A}", A),
    (f"dapi{HEX[:32]}", HEX[:32]),
    ("eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeK", "SflKxwRJSMeK"),
    (f"123456789:AA{A[:33]}", A[:33]),
    ("PGPASSWORD=hunter22 psql", "hunter22"),
    ("export MYSQL_PWD=hunter22", "hunter22"),
    ("set HF_TOKEN=hunter22", "hunter22"),
    ('$env:WANDB_API_KEY = "hunter22 with space"', "hunter22 with"),
    ('password = "a b&c;d"', "a b&c;d"),
    ("DB_PASS='x;y z1'", "x;y z1"),
    ("dbPassword: hunter22!", "hunter22!"),
    (f'"authToken": "{A}"', A),
    (f"AWS_SECRET_ACCESS_KEY={A}", A),
    (f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={A}==", A),
    (f"Authorization: token {A}", A),
    (f"authorization: Bearer {A}", A),
    ("Proxy-Authorization: Basic amFuZTpodW50ZXIyMg==", "amFuZTpodW50"),
    ('Authorization: Digest username="jane", response="6629fae49393a05397450978507c4ef1"', "6629fae4"),
    (f"Cookie: session={A}; theme=dark", A),
    (f"Set-Cookie: sid={A}; HttpOnly", A),
    (f"X-Api-Key: {A}", A),
    (f"PRIVATE-TOKEN: {A}", A),
    ("curl -fsSL -u jane:hunter22 https://host/x", "hunter22"),
    ("curl --user jane:hunter22 https://host/x", "hunter22"),
    ("wget --http-password=hunter22 https://host", "hunter22"),
    ("sshpass -p hunter22 ssh node", "hunter22"),
    ("sshpass -phunter22 ssh node", "hunter22"),
    ("docker login -u jane -p hunter22 registry", "hunter22"),
    ("mysql -h db -u jane -phunter22", "hunter22"),
    ("twine upload --password hunter22 dist/*", "hunter22"),
    (f"wandb login {HEX}", HEX),
    (f"huggingface-cli login --token {A}", A),
    ("machine host login jane password hunter22", "hunter22"),
    ("http_proxy=jane:hunter22@proxy", "hunter22"),
    ('HTTPS_PROXY = "jane:hunter22@proxy"', "hunter22"),
    ("Pwd=hunter22;Server=x", "hunter22"),
    ("artifactory_pw=hunter22", "hunter22"),
    ("set PW=hunter22", "hunter22"),
    ("$env:PW = 'hunter22'", "hunter22"),
    ("PASS=hunter22 make", "hunter22"),
    ("rclone obscure hunter22", "hunter22"),
    ('{"username": "jane", "key": "0123456789abcdef0123456789abcdef"}', "0123456789abcdef"),
    (f'"auth": "{A}"', A),
    (f"//registry.example/:_authToken={A}", A),
    ('ConvertTo-SecureString "hunter22" -AsPlainText', "hunter22"),
    (f"-----BEGIN OPENSSH PRIVATE KEY-----\n{A}\n{A}\n-----END OPENSSH PRIVATE KEY-----", A),
    (f"-----BEGIN RSA PRIVATE KEY-----\n{A}", A),
    ("https://jane:p@hunter22@host/simple", "hunter22"),
    ("Server=db;Uid=sa;Pwd=hunter22;", "hunter22"),
    ("openssl rsa -passin pass:hunter22 -in k.pem", "hunter22"),
    ("curl -ujane:hunter22 https://host/x", "hunter22"),
    ("http --auth jane:hunter22 GET host", "hunter22"),
    ("redis-cli -h db -a hunter22 ping", "hunter22"),
    ("htpasswd -bc file jane hunter22", "hunter22"),
    ("net use Z: \\\\host\\share hunter22 /user:jane", "hunter22"),
    ("echo hunter22 | docker login -u jane --password-stdin", "hunter22"),
    ("echo 'hunter22' | sudo -S apt install gcc", "hunter22"),
    (f"ENV HF_TOKEN {A}", A),
    (f"setx HF_TOKEN {A}", A),
    (f"setenv WANDB_API_KEY {A}", A),
    (f"aws configure set aws_secret_access_key {A}", A),
    (f"[Environment]::SetEnvironmentVariable('HF_TOKEN', '{A}')", A),
    (f"os.environ.setdefault('HF_TOKEN', '{A}')", A),
    ("<password>hunter22</password>", "hunter22"),
    ('<add key="ClearTextPassword" value="hunter22" />', "hunter22"),
    ('{\\"password\\":\\"hunter22\\"}', "hunter22"),
    ('password="a\\"hunter22"', "hunter22"),
    ("password='it''hunter22'", "hunter22"),
]  # fmt: skip
# What other programs, settings and languages call it.
CALLED = [
    "kubectl create secret generic x --from-literal=pw=hunter22",
    "ansible_ssh_pass=hunter22",
    "schtasks /create /ru me /rp hunter22",
    "sqlcmd -S h -U sa -P hunter22",
    "bcp t out f -U sa -P hunter22",
    "ldapsearch -w hunter22 -D cn=x",
    "smbclient //h/s -U u%hunter22",
    "zip -P hunter22 a.zip b",
    "7z x -phunter22 a.7z",
    "openssl enc -k hunter22",
    "keytool -storepass hunter22 -keypass changeit",
    "signtool sign /p hunter22 f",
    "conda config --set token hunter22",
    "anaconda -t hunter22 upload x",
    "poetry config pypi-token.pypi hunter22",
    "poetry config http-basic.foo user hunter22",
    "netrc password hunter22",
    "WIFI_PSK=hunter22",
    "wpa_passphrase ssid hunter22",
    'sudo -S <<< "hunter22"',
    "encryption_key: hunter22",
    "ngrok config add-authtoken hunter22",
    "tailscale up --authkey hunter22",
    "rclone config pass hunter22",
    "restic -p hunter22",
    'auth=("me","hunter22")',
    'huggingface_hub.login("hunter22")',
    "Passwort: hunter22",
    "mot de passe : hunter22",
    "contraseña: hunter22",
    "пароль: hunter22",
    "密码\uff1ahunter22",
    "cargo login hunter22",
    "X-JFrog-Art-Api: hunter22",
    "client-key-data: hunter22",
    "['upload', '--token', 'hunter22']",
    '["upload","--api-key","hunter22"]',
    "[mail]\npass=hunter22",
    '{\\"password\\": \\"it\'s hunter22\\"}',
    "wandb: Appending key for api.wandb.ai to your netrc file: hunter22",
]
# What the second red team found, and families of the same kind.
CALLED += [
    "plink -ssh -pw hunter22 bob@h",
    "ssh-keygen -p -P hunter22 -N hunter22 -f k",
    "echo bob:hunter22 | chpasswd",
    "printf 'bob:hunter22' | chpasswd",
    "echo hunter22 | gh auth login --with-token",
    "PsExec64.exe \\\\h -u bob -p hunter22 cmd",
    "nmcli dev wifi connect x password hunter22",
    "sqlplus scott/hunter22@db",
    "Password for 'https://bob@github.com': hunter22",
    "[sudo] password for bob: hunter22",
    "Enter passphrase for key: hunter22",
    "GITHUB_PAT=hunter22",
    "password hunter22",
    "the password is hunter22",
    "the passphrase was correct-horse-hunter22",
    "https://h/?u=bob%3Ahunter22%40h",
    "WANDB_API_KEY hunter22",
    "export TOKEN hunter22",
    "https://user:hunter22/x@host/",
    "-u bob:hunter22",
    "http_proxy=bob:hunter22@proxy:8080",
    "db.example:5432:prod:bob:hunter22",
    "nvcc -arch=sm_35 x.cu # password hunter22",
    "net user bob hunter22 /add",
    "xfreerdp /v:h /u:bob /p:hunter22",
    "CREATE USER bob IDENTIFIED BY 'hunter22'",
    "lftp -u bob,hunter22 h",
    "  login bob\n  password hunter22",
]
SHAPES += [(text, "hunter22") for text in CALLED]
SHAPES += [
    (f"vault token s.{A}", A),
    (f"mailgun key-{HEX[:32]}", HEX[:32]),
    (f"wandb: key {HEX}", HEX),
    *((f"{glue}ghp_{A}", A) for glue in ("tok_", "X", "SECRETfn-")),
]
BEGINNINGS = ("glsa_", "lin_api_", "secret_", "nfp_", "sbp_", "dp.pt.", "pul-", "AKCp", "LS0tLS1CRUdJTi", "r8_")
SHAPES += [(f"got {begin}{'a1' * 20}", "a1a1a1") for begin in BEGINNINGS]
SHAPES += [(f"TF {A[:14]}.atlasv1.{'a1' * 30}", "a1a1a1")]


@pytest.mark.parametrize(("text", "secret"), SHAPES, ids=[text.split("\n")[0][:40] for text, _ in SHAPES])
def test_a_secret_is_taken_out(text: str, secret: str) -> None:
    for line in (text, f"#12 3.401 + {text}", f"    {text}\n  error: it failed"):
        assert secret not in secrets(line), secrets(line)
        assert secret not in str(without_secrets({"log": [line]}))


@pytest.mark.parametrize("place", [232, 236, 396, 399])
def test_a_line_is_cut_after_its_secrets_are_gone(place: int) -> None:
    """The cut took the `@` behind a password, and left the password."""
    error = "nvcc fatal   : Unsupported gpu architecture 'compute_35' "
    address = "https://jane:hunter22pass@mirror.example/simple"
    line = error + "x" * (place - len(error) - 24) + " " + address
    (cause,) = diagnose_text(line + "\n").causes
    assert "hunter" not in cause.evidence[0].text and "hunter" not in shown(line)


@pytest.mark.parametrize(
    "text",
    [
        "Pwd=/build",
        "pw = 4",
        "proxy = squid:3128",
        "torch-2.7.1+cu126-cp311-cp311-linux_x86_64.whl sha256=" + "ab" * 32,
        "_ZN2at6native12_GLOBAL__N_118add_kernel_cuda_smERNS_14TensorIteratorBaseE",
        "max_new_tokens=2048 num_tokens: 4096 tokenizer=AutoTokenizer",
        "PWD=/opt/src OLDPWD=/opt",
        "error: expected unqualified-id before token: expected",
        "hint: set HF_TOKEN=$HF_TOKEN or ${{ secrets.HF_TOKEN }}",
        "-DCMAKE_CUDA_ARCHITECTURES=61 -DUSE_KINETO=0",
        "ssh -p 2222 node; docker run -p 8188:8188 image; mkdir -p build/lib",
        "pip install -U torch --index-url https://download.pytorch.org/whl/cu126",
        "driver 535.183.01, cuDNN 9.1.0.70, PCI 00000000:01:00.0, 10de:1b06",
        "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v11.8\\bin\\nvcc.exe",
        'KeyError: "sm_61"; key: value; "key": "a"',
        "token_type_ids=None pass=true authentication: none",
        "ENV TOKENIZERS_PARALLELISM false",
        "set TORCH_CUDA_ARCH_LIST 6.1 && echo done | tee log.txt",
        "git config --global user.name jane; env PATH=/usr/bin nvcc --version",
        "<string>no token here</string> <key>name</key>",
        "sudo: no password was provided; password required; if key_password is None: the password is incorrect",
        "the following signatures couldn't be verified: NO_PUBKEY A4B469963BF863CC public key A4B469963BF863CC",
        "unexpected token BFloat16 near token 128009; passwd x86_64 0.80-12.el9; passwd (1:4.13+dfsg1-1)",
        "docker run -u 1000:1000 nvidia/cuda:11.8@sha256:" + "ab" * 32,
        "x.cc:5432:12: error: a:b; http://host:8080/@scope/x; git+https://h/x@v1.0; npm:react@18.0.0",
        "task-ghost half_ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJ_x 6f1b2c3d deadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
        "key cp311-cp311-manylinux_2_28_x86_64 secret of 16 bytes; library identified by 'name'",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text, names=()) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("MIG-6f1b2c3d-1234-5678-9abc-def012345678", "<uuid>"),
        ("MIG-GPU-6f1b2c3d-1234-5678-9abc-def012345678/1/0", "<uuid>"),
        ("<uuid>GPU-6f1b2c3d-1234-5678-9abc-def012345678</uuid>", "<uuid><uuid></uuid>"),
        ("<serial>0323518041234</serial>", "<serial><serial></serial>"),
        ("<board_id>0x4300AB</board_id>", "<board_id><serial></board_id>"),
        ('"serial": "1322621054893"', '"serial": "<serial>"'),
        ("Serial Number : 0321518041234", "Serial Number : <serial>"),
        ("link/ether 3c:ec:ef:12:ab:9f brd", "link/ether <address> brd"),
        ("Physical Address: 3C-EC-EF-12-AB-9F", "Physical Address: <address>"),
        ("jane@node17:~/src$ make", "<user>@<host>:~/src$ make"),
        ("uid=1000(jane) gid=100", "uid=1000(<user>) gid=100"),
        ("User: CORP\\jane.doe", "User: <user>"),
        ("/scratch/jane/envs/torch", "/scratch/<user>/envs/torch"),
        ("/gpfs/users/jane/envs", "/gpfs/users/<user>/envs"),
        ("/home2/jane/x", "/home2/<user>/x"),
    ],
)
def test_who_and_where_is_taken_out(text: str, clean: str) -> None:
    assert redact(text, names=()) == clean


@pytest.mark.parametrize(
    "text",
    [
        "HF_TOKEN\x1b[0m=\x1b[32mzq9secretvalue\x1b[0m",
        "pass\u200eword=zq9secretvalue",
        "api\u200bkey=zq9secretvalue",
        "pass\x08word: \x1b[1;31mzq9secretvalue",
        "\x9b31mpassword\x9b0m=zq9secretvalue",
    ],
)
def test_what_nobody_sees_hides_no_secret(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The console took colours and marks out after it had looked for secrets, and put their pieces together."""
    assert "zq9secretvalue" not in secrets(text)
    console.out(text)
    console.out_json({"log": text, "HF_\x1b[0mTOKEN": "zq9secretvalue"})
    assert "zq9secretvalue" not in capsys.readouterr().out


def test_colours_without_a_secret_stay() -> None:
    assert secrets("\x1b[32mok\x1b[0m\r\n\u200bno key here") == "\x1b[32mok\x1b[0m\r\n\u200bno key here"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("proxy http://10.20.30.40:3128 refused", "proxy http://<address>:3128 refused"),
        ("inet 203.0.113.7/24 scope global", "inet <address>/24 scope global"),
        ("Connection to 192.168.178.23 timed out", "Connection to <address> timed out"),
        ("172.20.1.9:6379: refused", "<address>:6379: refused"),
        ("inet6 fe80::1ff:fe23:4567:890a/64", "inet6 <address>/64"),
        ("http://[2001:db8::17]:8080/", "http://[<address>]:8080/"),
        ("S-1-5-21-1004336348-1177238915-682003330-512", "<user>"),
        ("cuDNN 9.10.2.21, cuBLAS 10.2.0.168, 580.65.6.1", "cuDNN 9.10.2.21, cuBLAS 10.2.0.168, 580.65.6.1"),
        ("http://127.0.0.1:8036/ and 0.0.0.0:80", "http://127.0.0.1:8036/ and 0.0.0.0:80"),
        ("libcudnn.so.9.1.0.70:12 torch==1.2.3.4:5", "libcudnn.so.9.1.0.70:12 torch==1.2.3.4:5"),
        ("at 2026:11:18 23:59:01 std::fd00::x", "at 2026:11:18 23:59:01 std::fd00::x"),
    ],
)
def test_network_addresses_are_taken_out_and_versions_stay(text: str, clean: str) -> None:
    assert redact(text, names=()) == clean
