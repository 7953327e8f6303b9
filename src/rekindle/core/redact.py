"""Takes out what must not travel: user and host names, serial numbers, tokens, addresses.

`secrets` takes passwords and tokens out of a text, and the console does it with everything that it writes. `redact`
also takes out who and where: it is applied to snapshots, paste blocks and logs before they leave the machine. What is
replaced keeps its shape (`C:\\Users\\<user>\\source`; `<the user>` for a name with a space, `<üser>` for one beyond
ASCII), because a path with a space or an umlaut breaks builds, and whoever reads the snapshot must still see that it
has one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from rekindle.core.pattern import late

# C0 without tab and line feed, DEL, C1, line and paragraph separators, marks that turn or hide what follows.
UNSAFE = late(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# What parts no letters where it is shown: all that but a carriage return and the console's own marks, letters without a
# width, and the sequences that colour, which leave their letters behind where nothing obeys them.
_UNSEEN = rf"(?!\r|\x0e[0-9a-f]{{16}}:)(?:{UNSAFE.pattern}|[\u00ad\u200b-\u200d\u2060\ufeff])"
_SEQUENCE = (
    rf"(?:\x1b\[|\x9b)[0-?]{{0,64}}[ -/]{{0,8}}[@-~]|(?:\x1b\]|\x9d)[ -~]{{0,255}}(?:\x07|\x1b\\|\x9c)|{_UNSEEN}"
)
_KEY = (
    r"(?:token|secret|passw(?:or)?d|passphrase|credentials?|authorization|auth|psk|"
    r"(?:api|access|private|secret|signing|client|account|subscription|encryption)[_-]?key|signature|"
    r"(?:ssh|become|sudo|db|user|admin|root|smtp|mail|ftp|ldap|proxy)_pass|"
    r"passwort|mot\ de\ passe|contraseña|senha|hasło|пароль|密码|密碼|パスワード|비밀번호)s?"
)
# What services begin their keys with, and how such a key goes on: first those that no other word ends with.
_GLUED = (
    r"gh[pousr]_[A-Za-z0-9]{36,255}", r"github_pat_\w{22,255}", r"glpat-[\w-]{20,255}", r"hf_[A-Za-z0-9]{34,255}",
    r"xox[abeprs]-[0-9][\w-]{10,255}", r"nvapi-[\w-]{40,255}", r"AIza[\w-]{35,255}", r"npm_[A-Za-z0-9]{36,255}",
    r"dckr_pat_[\w-]{20,255}", r"sk-(?:ant|proj)-[\w-]{20,255}", r"[srp]k_live_\w{10,255}",
)  # fmt: skip
_TOKENS = (
    r"gh[pousr]_[A-Za-z0-9]{20,255}", r"github_pat_\w{20,255}", r"gl(?:pat|dt|rt|cbt|ptt|ft|soat)-[\w-]{16,255}",
    r"hf_[A-Za-z0-9]{20,255}", r"api_org_[A-Za-z0-9]{20,255}", r"xox[abeprs]-[\w-]{10,255}", r"xapp-[\w-]{10,255}",
    r"sk-[A-Za-z0-9_-]{20,255}", r"[srp]k_(?:live|test)_\w{10,255}", r"(?:AKIA|ASIA)[0-9A-Z]{16}",
    r"nvapi-[\w-]{20,255}", r"AIza[\w-]{30,255}", r"ya29\.[\w-]{20,2000}", r"GOCSPX-[\w-]{20,255}",
    r"npm_[A-Za-z0-9]{30,255}", r"pypi-[\w-]{50,2000}", r"dckr_pat_[\w-]{20,255}", r"SG\.[\w-]{16,64}\.[\w-]{16,64}",
    r"shp(?:at|ss|ca|pa)_[0-9a-fA-F]{20,255}", r"do[opr]_v1_[0-9a-f]{40,255}", r"hv[sbr]\.[\w-]{20,2000}",
    r"ATATT3[\w=-]{20,2000}", r"AGE-SECRET-KEY-1[0-9A-Z]{40,255}", r"r8_[A-Za-z0-9]{30,255}",
    r"gsk_[A-Za-z0-9]{30,255}",
    r"pplx-[A-Za-z0-9]{30,255}", r"lsv2_[a-z]{2}_\w{20,255}", r"tskey-[\w-]{16,255}", r"dapi[0-9a-f]{32}",
    r"glsa_\w{30,255}", r"lin_api_\w{30,255}", r"secret_[A-Za-z0-9]{36,255}", r"nfp_[A-Za-z0-9]{30,255}",
    r"sbp_[0-9a-f]{40}", r"dp\.(?:pt|st|ct|sa)\.[\w.-]{30,255}", r"pul-[0-9a-f]{40}", r"NRAK-[A-Z0-9]{26,255}",
    r"AKCp[A-Za-z0-9]{30,255}", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{50,255}",
    r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]{40,20000}", r"key-(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{24,64}",
    r"eyJ[\w-]{8,4000}\.[\w-]{4,8000}(?:\.[\w-]*)?", r"(?:bot)?[0-9]{8,10}:AA[\w-]{33}",
    r"(?:[\w-]{24}|[\w-]{26})\.[\w-]{6}\.[\w-]{27,38}",
)  # fmt: skip
# Programs, and what stands before a secret among their words.
_OPTIONS = (
    ("sshpass", r"-p\s*"), ("plink|pscp|psftp|putty", r"-pw\s+"), ("psexec(?:64)?|paexec|winexe", r"-p\s+"),
    ("curl|wget", r"(?:-u|--user|--proxy-user|-U)[\s=]+|-u(?=[^\s:-][^\s:]{0,64}:)"), ("redis-cli", r"-a\s+"),
    ("ssh-keygen", r"-[NP]\s*"), ("sqlcmd|bcp|osql|isql|zip|unzip|ipmitool", r"-P\s*"), ("7za?|unrar|rar", r"-p"),
    ("signtool|schtasks", r"/r?p\s+"), (r"ldap[a-z]{3,9}", r"-w\s*"), (r"openssl\s+enc", r"-k\s+"),
    ("restic|twine|pg_dumpall|lftp|steamcmd", r"-p\s+"), ("anaconda", r"-t\s+"), ("net", r"user\s+\S{1,64}\s+"),
    ("smbclient|rpcclient|net", r"-U\s+[^\s%]{1,64}%"), ("mysql|mysqldump|mysqladmin|mariadb|smbclient", r"-p"),
    ("htpasswd", r"-[a-z]*b[a-z]*\s+\S+\s+\S+\s+"), ("wpa_passphrase", r"\S{1,64}\s+"), ("cargo", r"login\s+"),
    (r"(?:docker|podman|oras|helm|az)\s(?:[^\r\n|;&]{0,40}?\s)?login", r"-p\s+"), ("cmdkey", "/pass:"),
    ("sudo", r"-S\s[^\r\n|;&]{0,40}?<<<\s*"), ("ngrok", r"(?:add-)?authtoken\s+"), ("steamcmd", r"\+login\s+\S+\s+"),
    ("net", r"use\s+(?:\S{1,3}:\s+)?\\\\\S{1,255}\s+"), ("wandb", r"login\s+(?:--relogin\s+)?"),
    ("composer|poetry|bundle", r"config\s(?:\S{1,20}\s+)?http-basic\.\S{1,60}\s+\S{1,60}\s+"),
    ("sqlplus|exp|imp|expdp|impdp|sqlldr|rman", r"(?:userid=)?\w{1,64}/(?=[^\s/]{4,255}@)"),
    ("https?|xh", r"-a\s+(?=[^\s:]{1,64}:)"), ("lftp", r"-u\s+[^\s,]{1,64},"), ("kinit|cryptsetup|passwd", r"<<<\s*"),
    ("mc", r"(?:alias\s+set|config\s+host\s+add)\s+\S{1,64}\s+\S{1,255}\s+\S{1,64}\s+"),
    ("rclone", r"obscure\s+"), ("xfreerdp|rdesktop|mstsc", r"/p:|-p\s+"), ("vncpasswd|x11vnc", r"-passwd\s+"),
)  # fmt: skip
_PASSWORD = r"(?:password|passphrase|passcode|passwort|mot\ de\ passe|contraseña|senha|hasło|пароль)"
_NAME = rf"[\w.]{{0,60}}(?<![a-zA-Z]){_KEY}(?![a-zA-Z])\w{{0,20}}"
_ODD, _MIXED = r"(?=[^\s]{0,64}[0-9!\#$%^&*+~?])", r"(?=[^\s]{0,64}[0-9])(?=[^\s]{0,64}[A-Za-z])"
_NOT_SAID = (
    r"(?i:(?:in)?correct|(?:in)?valid|wrong|required|requisite|sufficient|optional|include|substack|empty|missing|expired"
    r"|needed|changed|accepted|rejected|prompt|authentication|file)\b"
)
"""A line that says `password` goes on like this, too: in PAM's files and in errors."""
_SIGNS = (
    "/t/", "//hooks.", "//discord", "bearer", "basic", "token", "secret", "passw", "passphrase", "sshpass",
    "pass:", "_pwd", "cred", "auth", "_pass", "github_pat", "key", "nature", "sig=", "cook", "begin ", "login", "curl",
    " -p", "wget", "/user:", ";pwd", "redis-cli", "net use", "net  use", "sudo", "psk", "de passe", "contrase",
    "senha", "hasło", "пароль", "密", "パス", "비밀", "pw=", " pass ", "/p ", "/rp ", " -w", " -k", " -t", "keypass",
    "storepass", "ftp_pass", "smbclient", "<<<", "securestring", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "glpat",
    "gldt-", "glrt-", "glcbt", "glptt", "glft-", "glsoat", "glsa_", "hf_", "api_org_", "xox", "xapp-", "sk-",
    "k_live_", "k_test_", "akia", "asia", "nvap", "aiza", "ya29.", "gocspx", "npm_", "pypi-", "dckr_", "sg.", "shp",
    "_v1_", "hvs.", "hvb.", "hvr.", "atatt3", "r8_", "gsk_", "pplx-", "lsv2_", "dapi", "eyj", ":aa", "lin_api_",
    "nfp_", "sbp_", "dp.", "pul-", "nrak-", "akcp", ".atlasv1.", "ls0tls1crud", "pass=", "netrc", "-api", "%3a",
    "--user", "_pat", "passcode", "/p:", " -a ", "pw:", "pw =", "pwd=", "pass =", "obscure",
    "identified by", "cuda_arch_list", "mc ", " user ", ":5432:", ":5433:", ":6432:",
    ":*:",
)  # fmt: skip
"""No secret is without one of these, folded: most lines have none, and the expression is not even compiled."""
_SIGNS_AS_WRITTEN = late(r"-u[ =\t\n]|\S@|//[^/\s:@\[]+:\D")
"""`-U` is pip's upgrade, `CPU @ 3.60GHz` a clock: they stand in many an answer."""
_LONG_WORD = 16
_MOST_OF_A_LINE = 4
"""A program may be given more than one; what stands before the first is then looked at again."""
_NO_SECRET = r"(?i)\d{1,7}(?:\.\d+)*|true|false|none|null|yes|no|[$%].*|\*+|os\.environ.*|getenv.*"
"""Counts (`max_tokens=2048`), settings, and names of variables: nothing that anybody could use."""
# Nobody's name: what systems call their own users, and words of the field that a snapshot is made of.
_ORDINARY = frozenset({
    "public", "default", "all users", "root", "user", "admin", "administrator", "<user>", "home", "localhost",
    "linux", "windows", "debian", "ubuntu", "fedora", "centos", "arch", "alpine", "rocky", "almalinux", "opensuse",
    "ec2-user", "cloud-user", "runner", "vscode", "docker", "container", "wsl", "system", "venv", "conda",
    "embedded", "nvidia", "cuda", "cudnn", "torch", "pytorch", "python", "python3", "pip", "gcc", "clang", "msvc",
    "nvcc", "ninja",
})  # fmt: skip


@cache
def _secrets() -> re.Pattern[str]:
    return re.compile(
        rf"""(?x)
        (?P<pem>-{{4,5}}\ ?BEGIN\ [A-Z0-9 ]{{0,40}}PRIVATE\ KEY(?:\ BLOCK)?\ ?-{{4,5}})(?s:(?:(?!----).){{0,20000}})
          (?:-{{4,5}}\ ?END\ [A-Z0-9 ]{{1,60}}-----?|\Z)
        | (?P<scheme>\b(?i:[a-z][a-z0-9+.-]{{0,30}}://|https?:/))[^/\s:"'`<>]*:[^/\s"'`<>]+(?=@)  # user:p@ssword@host
        | (?P<cut>\b(?i:https?):/{{1,2}}[^/\s:@"'`<>\[]{{1,64}}:)                          # what followed is cut off
          (?![0-9]{{1,5}}(?![^\s/?\#"'`<>,;)])|(?i:port)\b|[$%{{<(\[*])[^\s/@"'`<>]{{4,255}}(?=["'`<>]|\s|\Z)
        | (?P<slashed>\b(?i:[a-z][a-z0-9+.-]{{0,30}})://[^/\s:@"'`<>]{{1,64}}:)(?![0-9]{{1,5}}/)[^\s:@"'`<>]{{4,255}}(?=@[\w.-]+)
        | (?P<bare>(?<![\w.:/@%+-])[A-Za-z][\w.-]{{0,63}}:)[^\s:@/"'`<>]{{4,255}}
          (?=@(?!sha\d)[A-Za-z][\w-]*(?:\.[\w.-]+|:[0-9]))
        | (?P<proxied>(?i:proxy)["']?\s{{0,3}}[=:]\s{{0,3}}["']?[^\s:@/"'`]{{1,64}}:)[^\s@/"'`]{{4,255}}(?=@)
        | (?P<quoted_address>%3[Aa])(?!%2[Ff])(?:(?!%40)[^\s&"'`<>]){{4,64}}(?=%40)
        | (?P<pgpass>(?<![\w.:/-])[\w.*-]{{1,255}}:(?:54[0-9]{{2}}|6432|\*):(?:[^\s:]{{1,64}}:){{2}})[^\s:]{{4,255}}
        | (?P<web>(?i:https?)://)[^/\s:@"'`<>?\#]{{8,}}(?=:?@)                                  # token@host
        | (?P<path>://[^/\s"'`<>]{{1,255}}/t/|//hooks\.slack\.com/services/|//discord(?:app)?\.com/api/webhooks/)[\w/-]{{8,255}}
        | (?P<digest>(?<![A-Za-z-])(?i:(?:proxy-)?authorization\s*:\s*digest\s+))[^\r\n]{{4,4000}}
        | (?P<header>(?<![A-Za-z-])(?i:(?:proxy-)?authorization\s*[:=]\s*["']?(?:[a-z]{{2,12}}\s+)?
            |(?:set-)?cookie\s*:\s*|(?:private|job|deploy|x-[a-z-]{{0,30}})-?(?:token|key|auth|api)\s*:\s*))
          [^\s"'`][^\r\n"'`]{{3,4000}}
        | (?P<bearer>\b(?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{{8,}}
        | (?P<user>(?<!\S)(?:-u|--user)[\s=]+[A-Za-z][\w.@-]{{0,63}}:){_ODD}[^\s"'`;&|]{{4,255}}
        | (?P<asked>(?i:{_PASSWORD})\s+for\s+[\w ]{{0,30}}(?:'[^'\r\n]{{1,255}}'|"[^"\r\n]{{1,255}}"|[^\s:]{{1,64}})?
            \s{{0,3}}:[ \t]{{1,3}})
          {_ODD}[^\s"'`]{{4,255}}
        | (?P<said>(?<![A-Za-z])(?:(?i:{_PASSWORD})[ \t]+(?:(?:is|was)[ \t]+)?{_ODD}
              |(?m:^)[ \t]{{0,40}}password[ \t]+(?!{_NOT_SAID})(?=\S{{4,255}}[ \t]*(?m:$))
              |(?:[A-Z0-9]{{1,20}}_){{0,6}}
                (?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PAT)[ \t]+{_MIXED}
              |(?i:token|secret|credential|api[ ]?key|(?<=wandb:\ )key)[ \t]+(?:is[ \t]+)?(?=[\w.~+-]{{16}})
                {_MIXED})
            (?![-$%/(<\[{{\\]))(?:"[^"\r\n]{{4,255}}"|'[^'\r\n]{{4,255}}'|[^\s"'`;&|,)]{{4,255}})
        | (?P<option>(?<![^\s"'\[])--?(?i:(?:[a-z]{{1,20}}-)?
            (?:token|password|passwd|passphrase|secret|auth|authkey|(?:store|key)pass|(?:api|access|secret)[_-]key))(?:\s+|["'],\s{{0,3}}["']))
          (?![-$%])[^\s"'`;&]{{4,}}
        | (?P<setting>(?<!\S)(?i:setx?|setenv|env|configure\s+set|config\s+set)\s+(?:/[mM]\s+)?
            (?i:{_NAME})\s+)(?![-$%=])[^\s;&=]{{4,}}
        | (?P<call>(?:(?i:setenvironmentvariable|setdefault|putenv|setenv)\(\s{{0,3}}
            |[\[(](?=["'][A-Z0-9]{{1,30}}_[A-Z_]{{2,40}}["'],))["']
            (?i:{_NAME})["']\s{{0,3}},\s{{0,3}}["'])[^"'\r\n]{{4,4000}}
        | (?P<cmake>\bENV\{{(?i:{_NAME})\}}\s{{1,3}}["']?)[^"'\r\n)\s]{{4,4000}}
        | (?P<pair>\bname["']?\s{{0,3}}[:=]\s{{0,3}}["']?(?i:{_NAME})["']?
            [,\s]{{1,20}}["']?value["']?\s{{0,3}}[:=]\s{{0,3}}["']?)[^"'\r\n,}}]{{4,4000}}
        | (?P<argument>\blogin\(\s{{0,3}}["']|\bauth=\(\s{{0,3}}["'][^"'\r\n]{{1,64}}["']\s{{0,3}},\s{{0,3}}["'])
          [^"'\r\n]{{4,4000}}
        | (?P<arches>\bTORCH_CUDA_ARCH_LIST["']?\s{{0,3}}[=:]\s{{0,3}}["']?)(?!(?:sm|compute)_){_MIXED}
          [A-Za-z0-9_!@%^&*-]{{8,255}}(?![\w.;+])
        | (?P<element><(?i:[\w.:-]{{0,40}}(?:token|secret|passw(?:or)?d|passphrase|apikey))>
            |(?i:key=["'][\w.]{{0,40}}(?:token|secret|password|apikey)["']\s{{1,3}}value=["']))[^<"'\r\n]{{4,4000}}
        | (?P<piped>\b(?:echo|printf)\s+(?:-n\s+)?)
          (?:"[^"\r\n]{{4,255}}"|'[^'\r\n]{{4,255}}'|(?![$%])[^\s"'`;&|]{{4,255}})
          (?=\s{{0,3}}\|[^\r\n]{{0,200}}
            (?:--password-stdin|\bsudo\s+-S|\bchpasswd|\bpasswd\b|--passphrase-fd|--with-token|-pass\s+stdin|cryptsetup))
        | (?P<named>(?<![A-Za-z])(?i:{_KEY})(?:[_-]\w{{1,40}})?
            |(?<=[a-z])(?:Token|Secret|Password|Passwd|Passphrase|ApiKey|AccessKey)
            |(?<=[A-Z])(?:PASSWORD|PASSWD|PASS|TOKEN|SECRET|APIKEY)|(?<=_)(?:PWD|PASS|KEY)|(?<=HUB_|LAB_|AZP_|ADO_|GIT_|HCR_|OPS_)PAT|(?<=GH_)PAT|(?<=;)(?i:pwd)|(?<![A-Za-z])(?i:pw)(?=\x20?[=:])|(?<![A-Za-z_])(?i:pass)(?=\x20?=)|(?<![\w-])[Pp]ass(?=\x20?:\x20?{_MIXED}\S{{6}})|(?<![A-Za-z_])[Pp]wd(?==(?!["']?(?:[/$%.~`]|[A-Za-z]:)))|(?<=[?&])(?:sig|key|sv)(?==)
            |(?<=")key(?=":))
          (?P<sep>\\?["']?\]?\s{{0,3}}(?::{{1,3}}=|[?+]=
            |:\s{{0,3}}[A-Za-z][\w.\[\] |]{{0,40}}=(?=\s{{0,3}}[bBrRuUfF]{{0,2}}["'])
            |=>(?=\s{{0,3}}["'])|[=:：＝])
            \s{{0,3}}(?:\\|[$(](?=["'])|[bBrRuUfF]{{1,2}}(?=["']))?)
          (?:(?<=\\)(?P<escaped>["'])(?P<inside>(?:(?!\\?(?P=escaped))[^\r\n]){{4,4000}})
            |(?<!\\)(?P<quote>["'])(?P<quoted>(?:\\[^\r\n]|(?P=quote){{2}}|(?!(?P=quote))[^\r\n\\]){{4,4000}})(?P=quote)|["']?(?![=<>~!\s])(?P<value>[^\s"'`;&,)}}\]<]{{4,}}))
        | (?P<token>(?:{"|".join(_GLUED)})|(?<![\w-])(?:{"|".join(_TOKENS)}))
        """
    )


@cache
def _programs() -> re.Pattern[str]:
    """A program of the rows with its words up to what stands before a secret; other words that nothing else follows."""
    rows = "|".join(
        rf"(?i:{programs})(?:\.exe)?\s(?:[^\r\n|;&]{{0,200}}?\s)??(?:{options})" for programs, options in _OPTIONS
    )
    return re.compile(
        rf"""(?x)(?P<login>(?<![\w-])(?:{rows}
            |(?:config|--set)\s+(?:set\s+)?(?:\S{{1,40}}\s+)?(?:pass|(?:\S{{0,40}}[-_.])?(?:token|password)(?:\.\S{{1,40}})?)\s+
            |-pass(?:in|out)?\s+pass:|netrc\s+(?:password|file:)\s+|ConvertTo-SecureString\s+(?:-String\s+)?
            |(?i:identified\s+by)\s+(?=["'][^"'\r\n]{{0,255}}[0-9])|machine\s+\S{{1,255}}\s+login\s+\S{{1,255}}\s+password\s+))
          (?:"[^"\r\n]{{1,255}}"|'[^'\r\n]{{1,255}}'|(?![-$%/<])[^\s"'`;&|]{{4,}})"""
    )


@cache
def _who() -> re.Pattern[str]:
    return re.compile(
        r"""(?x)
        (?P<net>(?<![\w.+=-])(?!127\.|0\.0\.0\.0)(?:(?:192\.168|172\.(?:1[6-9]|2[0-9]|3[01])|169\.254)(?:\.[0-9]{1,3}){2}
              |(?:(?<=//)|(?<=@)|(?<=inet\ )|(?<=addr:)|(?<=src\ )|(?<=dst\ )|(?<=via\ )|(?<=server\ ))
                [0-9]{1,3}(?:\.[0-9]{1,3}){3}
              |[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?=/[0-9]{1,2}\b)
              |[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?=:[0-9]{2,5}\b))(?![\w.]*[\w])
            |(?<![\w:])(?=[0-9a-f:]*::|(?:[0-9a-f]{1,4}:){7})(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3})(?::[0-9a-f]{0,4}){2,7}(?![\w:]))
        | (?P<sid>\bS-1-5-21(?:-[0-9]{1,10}){3,4}\b)
        | (?P<uuid>\b(?:(?:GPU|MIG)-)?(?:GPU-)?(?i:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:/[0-9]+/[0-9]+)?\b)
        | (?P<serial>(?i:(?:serial|asset)(?:[ _]*(?:number|no|tag))?|board[ _]+(?:id|serial)|service[ _]tag)
            (?:["']?\s*[:=,>]\s*["']?|\s+))(?P<number>(?=[0-9A-Z-]*[0-9])[0-9A-FX-Zx][0-9A-Zx-]{5,})
        | (?P<mac>\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b|\b(?:[0-9A-F]{2}-){5}[0-9A-F]{2}\b)
        | \b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{2,63})+\b               # e-mail
        | (?P<prompt>\b[\w.-]{1,32}@[\w-]{1,63}(?=:[~/]|[ ][~/]))             # jane@node17:~$
        | (?P<account>(?i:\b(?:user(?:[ _]?name)?|account|owner|logged\s+on\s+as|whoami)\s*[:=>]\s*))
            [\w.-]{1,32}\\{1,2}[\w.$-]{1,32}
        | (?P<uid>\buid=[0-9]+)\([\w.-]+\)
        """
    )


@cache
def _homes() -> re.Pattern[str]:
    return re.compile(
        r"(?i)((?:[a-z]:)?[\\/]{1,8}(?:users|home\d?|u|run[\\/]media|documents and settings"
        r"|(?:scratch|gpfs|lustre|beegfs|nfs)(?:[\\/](?:users?|home|u|work))?)[\\/]{1,8})"
        r"([^\\/\r\n\"'<>|:*?]+?)(?=[\\/\"'\r\n;:]|$)"
    )


def redact(text: str, *, names: Iterable[str] | None = None) -> str:
    """`text` without names and secrets. `names` are this machine's user and host names unless given."""
    text = _who().sub(_nameless, secrets(text))
    text = _homes().sub(lambda m: m.group(1) + (m.group(2) if m.group(2).lower() in _ORDINARY else _nobody(m[2])), text)
    for name in sorted(local_names() if names is None else names, key=len, reverse=True):
        if len(name) > 2 and name.lower() not in _ORDINARY:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<name>", text)
    return text


def local_names() -> set[str]:
    """The names by which this machine and its user are known."""
    import getpass
    import socket

    names = {socket.gethostname(), socket.gethostname().split(".")[0]}
    with contextlib.suppress(RuntimeError):  # a user without an entry in the system has no home
        names.add(Path.home().name)
    names |= {os.environ.get(key, "") for key in ("USERNAME", "USER", "COMPUTERNAME", "HOSTNAME", "USERDOMAIN")}
    with contextlib.suppress(OSError, KeyError, ImportError):
        names.add(getpass.getuser())
    return {name for name in names if name}


def _nobody(name: str) -> str:
    """Nobody's name, of the same shape as `name`."""
    return f"<{'the ' if ' ' in name else ''}{'user' if name.isascii() else 'üser'}>"


def clean(text: str) -> str:
    """Foreign text (a log line, a file name, a program's output) without what a terminal obeys.

    The console does this itself; it is for text that is measured, cut or written elsewhere.
    """
    return UNSAFE.sub("", text)


def secrets(text: str) -> str:
    """`text` without passwords and tokens, which colours and what nobody sees may cut in pieces."""
    return _short(text) if len(text) < _REPEATED else _without(text)


# An answer in JSON says the same few hundred words thousands of times.
_REPEATED = 200


@lru_cache(maxsize=4096)
def _short(text: str) -> str:
    return _without(text)


def _without(text: str) -> str:
    for plain in dict.fromkeys(re.sub(unseen, "", text) for unseen in (_SEQUENCE, _UNSEEN)):
        folded = plain.casefold()
        signs = any(sign in folded for sign in _SIGNS) or _SIGNS_AS_WRITTEN.search(plain)
        if signs and (masked := _masked(plain)) != plain:
            return masked
    return text


def _masked(text: str) -> str:
    for _ in range(_MOST_OF_A_LINE):
        text, found = _programs().subn(_mask, text)
        if not found:
            break
    return _secrets().sub(_mask, text)


def without_secrets(value: Any) -> Any:
    """The same for plain data: texts, and whatever stands under a name like `HF_TOKEN`."""
    if isinstance(value, str):
        return secrets(value)
    if isinstance(value, Mapping):
        return {secrets(str(key)): _of_name(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(item) for item in value]
    return value


def _of_name(name: str, value: Any) -> Any:
    if isinstance(value, str) and value and _is_secret(name) and not value.isspace():
        return "<secret>"
    if isinstance(value, str) and name.isupper():  # a variable, which says what its value should be
        return secrets(f"{name}={value}").removeprefix(f"{name}=")
    return without_secrets(value)


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    shape = rf"(?<![A-Za-z])(?i:{_KEY})(?![A-Za-z])|(?<=[A-Z])(?:PASSWORD|PASSWD|TOKEN|SECRET)$"
    return bool(re.search(rf"{shape}|(?:\A|_)(?:PWD|PASS|PAT|PW)$", re.sub(_SEQUENCE, "", name)))


def _mask(match: re.Match[str]) -> str:
    kind = match.lastgroup if match.lastgroup not in ("quote", "quoted", "inside", "value", "sep") else "named"
    if kind == "token":
        return "<secret>"
    if kind != "named":
        begin = match.group(kind or 0)
        return f"{begin}<secret>{_quotes(match.group()[len(begin) :])}"
    value = match.group("quoted") or match.group("inside") or match.group("value")
    if re.fullmatch(_NO_SECRET, value):
        return match.group()
    if match.group("sep").strip() == ":" and value.isalpha() and len(value) < _LONG_WORD:
        return match.group()  # `error: before token: expected`
    begin, end = match.group("quote") or match.group("escaped") or "", match.group("quote") or ""
    return f"{match.group('named')}{match.group('sep')}{begin}<secret>{_quotes(value)}{end}"


def _quotes(text: str) -> str:
    """The quotes that stay open behind a text: without them a shell takes what follows in a command for another one."""
    left = ""
    for letter in re.findall("[\"']", text):
        left = left[:-1] if left.endswith(letter) else left + letter
    return left


def _nameless(match: re.Match[str]) -> str:
    kind = match.lastgroup if match.lastgroup != "number" else "serial"
    if kind in ("serial", "account", "uid"):
        return f"{match.group(kind)}{ {'serial': '<serial>', 'account': '<user>', 'uid': '(<user>)'}[kind] }"
    return {"uuid": "<uuid>", "mac": "<address>", "net": "<address>", "sid": "<user>", "prompt": "<user>@<host>"}.get(
        kind or "", "<secret>"
    )
