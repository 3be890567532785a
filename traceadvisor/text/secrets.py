"""Recognises and redacts tokens, passwords and keys in a text."""

from __future__ import annotations

import re
import tomllib
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

_WORD, _URL_SAFE = "[A-Za-z0-9]", "[A-Za-z0-9_-]"

_FORMS = (
    ("GitHub", rf"gh[opsur]_{_WORD}{{16,}}"),
    ("GitLab", rf"gl(?:pat|dt|ft|soat|rt|rtr|cbt|imt|ptt|wt|agent|oas|ffct)-{_URL_SAFE}{{16,}}"),
    ("Hugging Face", rf"(?:hf|api_org)_{_WORD}{{16,}}"),
    ("AWS", r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{12,}"),
    ("AWS Bedrock", r"ABSK[A-Za-z0-9+/]{60,}={0,2}"),
    ("LangSmith", r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}"),
    ("Databricks", r"dapi[a-f0-9]{32}(?:-\d)?"),
    ("HashiCorp Vault", rf"hv[sbr]\.{_URL_SAFE}{{20,}}"),
    ("HashiCorp Terraform", rf"{_WORD}{{14}}\.atlasv1\.[\w=-]{{40,}}"),
    ("HashiCorp Vault", r"s\.(?=[A-Za-z]{0,23}\d)(?=[a-z\d]{0,23}[A-Z])(?=[A-Z\d]{0,23}[a-z])[A-Za-z0-9]{24}(?!\w)"),
    ("Docker", rf"dckr_(?:pat|oat)_{_URL_SAFE}{{16,}}"),
    ("DigitalOcean", r"do[opr]_v1_[a-f0-9]{30,}"),
    ("Slack", r"xox[abeoprs]-[A-Za-z0-9-]{8,}"),
    ("Slack", r"xapp-\d-[A-Za-z0-9-]{10,}"),
    ("Slack webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9_+/-]{20,}"),
    ("Discord webhook", rf"discord(?:app)?\.com/api/webhooks/\d{{10,}}/{_URL_SAFE}{{20,}}"),
    ("Discord bot", rf"[MNO][DTjz][A-Zcgk]{_URL_SAFE}{{21,23}}\.{_URL_SAFE}{{6}}\.{_URL_SAFE}{{27,}}"),
    ("Telegram bot", rf"\d{{8,10}}:{_URL_SAFE}{{35}}"),
    ("Microsoft Teams webhook", r"[a-z0-9-]{1,63}\.webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{20,}"),
    ("Stripe", rf"(?:sk|rk)_(?:live|test|prod)_{_WORD}{{10,}}"),
    ("Square", rf"sq0(?:csp|atp)-{_URL_SAFE}{{20,}}"),
    ("Shopify", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    ("SendGrid", r"SG\.[\w=-]{16,}\.[\w=-]{16,}"),
    ("Mailchimp", r"[0-9a-f]{32}-us\d{1,2}"),
    ("Atlassian", r"AT[AC]TT3[\w=-]{20,}"),
    ("HubSpot", r"pat-(?:na|eu)\d-[A-Za-z0-9-]{20,}"),
    ("Grafana", r"(?:glsa|glc)_[\w+/-]{20,}"),
    ("Sentry", r"sntry[su]_[A-Za-z0-9+/=_-]{20,}"),
    ("Dynatrace", r"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{20,}"),
    ("Doppler", rf"dp\.(?:pt|st|ct|sa|scim|audit)\.{_URL_SAFE}{{20,}}"),
    ("PlanetScale", r"pscale_(?:tkn|pw|oauth)_[\w=.-]{20,}"),
    ("Tailscale", r"tskey-[a-z]{1,12}-[A-Za-z0-9-]{16,}"),
    ("Fly.io", rf"(?:fo1_{_URL_SAFE}{{20,}}|fm(?:1[ar]|2)_[A-Za-z0-9+/=]{{20,}})"),
    ("Azure", r"[\w~.]{3}\dQ~[\w~.-]{31,}"),
    ("MaxMind", rf"{_WORD}{{6}}_{_WORD}{{29}}_mmk"),
    ("Adyen", r"AQE[a-z0-9]{5,40}\.[\w=-]{50,}"),
    ("Authress", r"(?:sc|ext|scauth|authress)_[\w-]{5,30}\.\w{4,6}\.acc[_-][\w-]{10,32}\.[\w+/=-]{30,}"),
    ("Facebook", r"\d{15,16}[|%][\w-]{27,40}"),
    ("Twitter", r"A{22}[A-Za-z0-9%]{80,}"),
    ("Yandex", r"t1\.[\w-]{8,400}={0,2}\.[\w-]{86}={0,2}"),
    ("JSON Web Token", r"eyJ[A-Za-z0-9_-]{8,400}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
)
"""Issuer and form of each kind of token that has more than a beginning; the others are in ``tokens.toml``."""

_ALPHABETS = {
    "base64": "[A-Za-z0-9+/=_-]",
    "dash": "[A-Za-z0-9-]",
    "dotted": "[A-Za-z0-9._=-]",
    "hex": "[a-fA-F0-9]",
    "letters": _WORD,
    "upper": "[A-Z0-9]",
    "url": _URL_SAFE,
    "word": "[A-Za-z0-9_]",
}


def token_table() -> list[dict[str, Any]]:
    """The kinds of tokens that are known by their beginning."""
    text = resources.files(__package__).joinpath("tokens.toml").read_text(encoding="utf-8")
    kinds: list[dict[str, Any]] = tomllib.loads(text)["token"]
    return kinds


def _prefixed() -> str:
    """The pattern of those tokens. What cannot begin one is passed over at once."""
    kinds: dict[tuple[str, int], list[str]] = {}
    for kind in token_table():
        kinds.setdefault((kind["alphabet"], kind["length"]), []).extend(kind["prefixes"])
    forms = (
        f"(?:{'|'.join(map(re.escape, prefixes))}){_ALPHABETS[alphabet]}{{{length},}}"
        for (alphabet, length), prefixes in kinds.items()
    )
    first = "".join(sorted({prefix[0] for prefixes in kinds.values() for prefix in prefixes}))
    return f"(?=[{first}])(?:{'|'.join(forms)})"


_BEGIN = r"(?:\b|(?<=\\u[0-9a-fA-F]{4})|(?<=\\x[0-9a-fA-F]{2})|(?<=%[0-9a-fA-F]{2})|(?<=\\[nrt])|(?<=_))"
"""The start of a word; also after an escape, because some texts are escaped twice, and after an underscore."""

_TOKENS = re.compile(rf"{_BEGIN}(?:{_prefixed()}|{'|'.join(form for _, form in _FORMS)})")


REDACTED = "[redacted]"

LONGEST_NAMED = 80
"""Longest name in a message, in characters."""

_LONGEST_READ = 1 << 12

_KEYS = (
    r"token(?!i[sz]|_type|s_per|s?/)|secret|api[_ -]?key"
    r"|(?:access|account|auth|client|encryption|kaggle|secret|service|shared_?access|signing|private)_?-?key"
    r"|(?:deploy|instrumentation|licen[cs]e|master|storage|subscription)_?-?key"
    r"|credentials?|(?:php|j)?sess(?:ion)?_?id|(?<=[\"'])_?auth(?=\\{0,7}[\"'])"
)
_PASSWORDS = (
    r"passw(?:or)?[dt]|passphrase|passcode|pwd"
    r"|(?:admin|auth|db|database|ftp|http|key|ldap|mail|mongo|my_?sql|pg|postgres|proxy|redis|root|smtp|ssh|user)[_-]?pass"
    r"|(?<=[\"'])pass(?=\\{0,7}[\"'])"
)
_NO_SECRETS = r"(?:None|null|nil|true|false|required|optional|str|bytes|int|ask|prompt)\b"
_ASSIGNED = r"[\w.-]{0,40}\\{0,7}[\"']?\]?\s{0,4}(?:=>?|:(?!:)|[\uff1a\uff1d]|%3[AaDd])\s{0,4}"
_BEHIND_EQUALS = r"(?:(?<==)|(?<=%3D)|(?<=%3d))"
_QUOTE = r"[bBrRuUfF]{0,2}(?P<quote>\\{0,7}[\"'])(?!\[redacted\](?P=quote))"
"""The start of a quoted text, in Python and in JSON within JSON, too."""

_PRIVATE_KEYS = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_USER_IN_URL = re.compile(
    r"(?<=://)(?!git@)"
    r"(?:[^\s/\"'<>?#]{1,400}(?=@)"
    r"|[^\s/:@\"'<>?#\[]{0,60}:(?!\d{1,5}[/?#]|/)[^\s\"'<>]{1,200}(?=@[\w\[]))"  # a password may hold any of `/?#`
)
_USER_IN_URL_PATH = re.compile(r"(?<=[a-z]:/)(?!/)[^\s/:@\"'<>?#]{0,60}:[^\s/\"'<>?#]{1,200}(?=@[\w\[])")
"""`Path` makes one slash of two."""

_USER_IN_ENCODED_URL = re.compile(
    r"(?i)(?<=%3A%2F%2F)(?:(?!%[24][0F])[^\s\"'<>&]){0,60}%3A(?:(?!%40)[^\s\"'<>&]){1,200}(?=%40)"
)
_USER_AT_HOST = re.compile(
    r"(?<![\w/@.:-])([A-Za-z][\w.-]{0,60}:)(?!\d+@)[^\s/:\"'<>,;()\[\]{}]{3,200}(?=@(?!sha\d)(?:[A-Za-z]|\d{1,3}(?:\.\d{1,3}){3}\b))"
)
_SIGNATURES = re.compile(r"(?i)([?&;](?:sig|signature|x-(?:amz|goog)-(?:signature|credential))=)[A-Za-z0-9%+/=_.-]{8,}")
_HEADERS = re.compile(
    r"(?i)(\b(?:proxy-)?authorization(?:[\"']?\s{0,4}[:=]|[\"'],)\s{0,4}b?[\"']?"
    r"(?:(?P<scheme>(?:token|basic|bearer|digest|negotiate|apikey)\s{1,4})|(?:[a-z-]{3,20}\s{1,4})?))"
    r"(?(scheme)(?!\[redacted\])[^\s\"']+|[A-Za-z0-9+/._~=:-]{8,})"
)
_QUERY = re.compile(
    r"(?i)((?:[?&]|%3F|%26)(?:(?:access_?|auth_?)?token|auth|(?:api_?)?key|secret|pass(?:word)?|pwd|sig(?:nature)?)(?:=|%3D))"
    r"(?!\[redacted\])[^\s&#\"'<>]{1,2000}"
)
_USER_OPTIONS = re.compile(
    r"((?<![\w-])(?:-u|--(?:proxy-)?user|--auth|--login)[ =]\s{0,3}[\"']?[\w.@-]{1,60}:)"
    r"(?!\d+\b|\[redacted\])[^\s\"'/:][^\s\"']{0,200}"
)
_VARIABLES = re.compile(r"(\b[A-Z][A-Z0-9_]{0,60}_(?:PW|PASS|AUTH|CREDS?)=)(?!\[redacted\])[^\s\"']+")
_BEARERS = re.compile(r"(?i)(\b(?:bearer|basic)\s{1,4})(?=[a-z+/._~=-]{0,200}[0-9])[A-Za-z0-9+/._~=-]{16,}")
_BASIC = re.compile(r"(?i)(\bbasic\s{1,4})([A-Za-z0-9+/]{4,2000}={0,2})")
_COOKIES = re.compile(
    r"(?i)((?<![a-z])cookies?(?:[\"']?\]?\s{0,4}[:=,]|(?<=-cookie)\s)\s{0,4}b?[\"']?)(?!\[redacted\])[\w.-]{1,100}=[^\"'\r\n]+"
)
_COOKIE_VALUES = re.compile(
    rf"(?i)((?<![a-z])cookies?[\"']?\]?\s{{0,4}}[:=]\s{{0,4}}b?[\"']?)(?!{_NO_SECRETS}|[/~.])"
    r"(?:\{[^{}\n]{1,2000}(?=\})|(?=[^\s\"',;&]{0,200}[A-Za-z])(?=[^\s\"',;&]{0,200}\d)[^\s\"',;&()<>\[\]{}]{8,})"
)
_SECRET_KEYS = re.compile(
    rf"(?i)((?:{_KEYS}){_ASSIGNED}[\"']?)(?!{_NO_SECRETS})"
    r"(?=[^\s\"',;&]{0,200}[A-Za-z])"  # a plain number is a setting (`max_tokens=4096`)
    rf"(?:{_BEHIND_EQUALS}[^\s\"',;&()<>\[\]{{}}]{{3,}}|[^\s\"',;&()<>\[\]{{}}]{{6,}})"
)
_SECRET_KEYS_QUOTED = re.compile(
    rf"(?i)((?:{_KEYS}){_ASSIGNED}{_QUOTE})(?!{_NO_SECRETS})(?=[^\n]{{0,200}}[A-Za-z])(?:(?!(?P=quote))[^\n]){{3,400}}(?=(?P=quote))"
)
_AFTER_NAME = re.compile(rf"(?i)((?:{_KEYS})\s{{1,4}})(?=[A-Za-z0-9+/_=.-]{{0,200}}\d)[A-Za-z0-9+/_=.-]{{20,}}")
_PASSWORDS_QUOTED = re.compile(
    rf"(?i)((?:{_PASSWORDS})(?:{_ASSIGNED}|\(\s{{0,4}}){_QUOTE})(?:(?!(?P=quote))[^\n]){{1,400}}(?=(?P=quote)|\n|\Z)"
)
_PASSWORDS_BARE = re.compile(
    rf"(?i)((?:{_PASSWORDS}){_ASSIGNED})(?!{_NO_SECRETS}|\[redacted\]|[bBrRuUfF]{{0,2}}\\{{0,7}}[\"'])"
    rf"(?:{_BEHIND_EQUALS}[^\s\"'()<>\[\]{{}}]+|[^\s\"'()<>\[\]{{}}]{{3,}})"
)
_IN_BRACES = re.compile(rf"(?i)((?:{_PASSWORDS}){_ASSIGNED})\{{(?!\[redacted\])[^{{}}\n]{{1,400}}\}}")
_AFTER_PASSWORD = re.compile(
    rf"(?i)((?:{_PASSWORDS})\\{{0,7}}[\"']?(?:\s{{1,4}}is)?\s{{1,4}}\\{{0,7}}[\"']?)"
    r"(?=[^\s\"'()<>]{0,200}\d)(?=[^\s\"'()<>]{0,200}[A-Za-z])[^\s\"'()<>]{6,}"
)
_BEHIND_P = re.compile(
    r"(?i)(\b(?:mysql(?:dump|admin|import|show|check|sh)?|mariadb(?:-[a-z]{1,10})?)"
    r"[\"']?,?\s(?:[^\n|;]{0,200}?[\s\"'])??[\"']?-p|\bsshpass[\"']?,?\s{1,4}[\"']?-p[\"']?,?\s{0,4}[\"']?)"
    r"(?!\[redacted\]|\d{1,5}(?::\d{1,5})?(?![^\s\"'])|(?:rint0?|ath|erm|rune)\b)[^\s\"']+"
)
"""The clients of MySQL take a password right behind `-p`; a port is none."""

_ORACLE = re.compile(
    r"(?i)(\b(?:jdbc:oracle:[a-z0-9]{1,10}:|sqlplus\s{1,4}(?:-[a-z]{1,6}\s{1,4})?)[^\s/@\"':]{1,60}/)(?!\[redacted\])[^\s@\"']{1,200}(?=@)"
)
_ONE_TIME = r"(?:[ht]?otp|2fa|mfa)(?:[_-]?code)?"
_ONE_TIME_CODES = re.compile(
    rf"(?i)((?<![a-z]){_ONE_TIME}[\"']?\]?(?:\s{{0,4}}[:=,]|\s)\s{{0,4}}[\"']?)\d{{3}} ?\d{{3,5}}\b"
)
_LOGINS = re.compile(r"(?i)(\blogin\s{1,4}\S{1,60}\s{1,4}password\s{1,4})\S+")
_TAGGED = re.compile(
    rf"(?i)(<[\w:.-]{{0,40}}(?:{_KEYS}|{_PASSWORDS})[\w:.-]{{0,40}}>)(?!\[redacted\])[^\s<>][^<>]{{2,400}}(?=</)"
)
_PAIRED = re.compile(
    rf"(?i)([(\[]\s{{0,4}}\\{{0,7}}[\"'][\w.-]{{0,40}}(?:(?P<key>{_KEYS})|{_PASSWORDS})[\w.-]{{0,40}}\\{{0,7}}[\"']"
    rf"\s{{0,4}},\s{{0,4}}{_QUOTE})(?!-|{_NO_SECRETS})(?(key)(?=[^\n\"']{{0,200}}\d)(?=[^\n\"']{{0,200}}[A-Za-z]))"
    r"(?:(?!(?P=quote))[^\n]){3,400}(?=(?P=quote)\s{0,4}[)\]])"
)
_VALUES = re.compile(
    rf"(?i)(\b(?:name|key|variable)\\{{0,7}}[\"']?\s{{0,4}}[:=]\s{{0,4}}\\{{0,7}}[\"']?"
    rf"[\w.-]{{0,40}}(?:{_KEYS}|{_PASSWORDS})[\w.-]{{0,40}}\\{{0,7}}[\"']?\s{{0,4}},?\s{{0,20}}\\{{0,7}}[\"']?"
    r"value\\{0,7}[\"']?\s{0,4}[:=]\s{0,4}\\{0,7}[\"']?)"
    r"(?!\[redacted\])[^\s\"'{}\[\],]{3,}"
)
"""Settings of containers: `{"name": "DB_PASSWORD", "value": "..."}`."""

_OPTIONS_QUOTED = re.compile(
    rf"(?i)((?<![\w-])--?[\w-]{{0,60}}(?:{_KEYS}|{_PASSWORDS})\s{{1,4}}{_QUOTE})"
    r"(?=[^\n]{0,200}[A-Za-z])(?:(?!(?P=quote))[^\n]){1,400}(?=(?P=quote))"
)
_OPTION = rf"--?[\w-]{{0,60}}(?:{_KEYS}|{_PASSWORDS})"
_OPTIONS = re.compile(
    rf"(?i)((?<![\w-])--?[\w-]{{0,60}}(?:(?P<key>{_KEYS})|{_PASSWORDS})\s{{1,4}}[\"']?)"
    r"(?!-)(?(key)(?=[^\s\"']{0,200}[A-Za-z])[^\s\"']{6,}|[^\s\"']+)"
)
_OPTIONS_LISTED = re.compile(
    rf"(?i)((?<![\w-])--?[\w-]{{0,60}}(?:(?P<key>{_KEYS})|{_PASSWORDS})"
    rf"\\?[\"']\s{{0,4}},\s{{0,4}}\\?{_QUOTE})(?!-|{_NO_SECRETS})"
    r"(?(key)(?=[^\n\"']{0,200}[A-Za-z]))(?:(?!(?P=quote))[^\n]){1,400}(?=(?P=quote))"
)
"""As Python and JSON write the words of a command line."""

_USER_AND_KEY = re.compile(
    rf"(?i)([\"']username\\?[\"']\s{{0,4}}:\s{{0,4}}\\?[\"'][^\s\"']{{0,100}}[\"']\s{{0,4}},\s{{0,4}}"
    rf"\\?[\"']key\\?[\"']\s{{0,4}}:\s{{0,4}}\\?{_QUOTE})(?:(?!(?P=quote))[^\n]){{1,400}}(?=(?P=quote))"
)
_KEY_AND_USER = re.compile(
    rf"(?i)([\"']key\\?[\"']\s{{0,4}}:\s{{0,4}}\\?{_QUOTE})(?:(?!(?P=quote))[^\n]){{1,400}}"
    r"(?=(?P=quote)\s{0,4},\s{0,4}\\?[\"']username\\?[\"']\s{0,4}:)"
)
"""The file of Kaggle's key, in both orders."""

_OPTION_NAME = re.compile(rf"(?i){_OPTION}")
_OPTION_VALUE = re.compile(rf"(?=.*[A-Za-z])(?!{_NO_SECRETS})[^-<\[].{{2,}}", re.DOTALL | re.IGNORECASE)
_SHORT_OPTION = re.compile(r"(?i)--?(?:[\w-]{0,60}[_-])?(?:auth|creds?|pw|pass)")
_KEY_OPTION = re.compile(r"(?i)--?(?:[\w-]{0,60}[_-])?key")
_LONG_KEY = re.compile(r"(?=.*[A-Za-z])(?=.*\d)[A-Za-z0-9+/_=-]{20,}")
_ONE_TIME_OPTION = re.compile(rf"(?i)--?(?:[\w-]{{0,40}}[_-])?{_ONE_TIME}")
_USER_OPTION = re.compile(r"-u|--(?:proxy-)?user|--auth|--login")
_USER_AND_PASSWORD = re.compile(r"([\w.@-]{1,60}:)(?!\d+\Z)[^/:].*", re.DOTALL)
_PASSWORD_OPTION = re.compile(rf"(?i)--?[\w-]{{0,60}}(?:{_PASSWORDS})")
_SECRET_VALUE = re.compile(r"(?=.*\d)[^/~.].{7,}", re.DOTALL)
"""A value of a variable that is no plain word (`default`) and no path."""

_LONG_VALUES = re.compile(
    r"(\b[A-Za-z_][\w.-]{0,60}[\"']?\s{0,4}=\s{0,4}[\"']?)"
    r"([A-Za-z0-9][A-Za-z0-9+/_-]{31,}={0,2})(?![A-Za-z0-9+/_-])"
)
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+")
_MIXED = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))
# Bounded repetitions keep the time linear, even for a megabyte of hostile text.

_Patterns = tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]

_WHOLE: _Patterns = (
    (("-----begin",), _PRIVATE_KEYS),
    (("",), _TOKENS),
    (("://",), _USER_IN_URL),
    ((":/",), _USER_IN_URL_PATH),
    (("%3a%2f%2f",), _USER_IN_ENCODED_URL),
)
_KEY_HINTS = ("token", "secret", "key", "credential", "sess", "auth")
_PASSWORD_HINTS = ("pass", "pwd")
_NAMED: _Patterns = (
    (("@",), _USER_AT_HOST),
    (("=", "%3d"), _QUERY),
    (("sig", "x-"), _SIGNATURES),
    (("-u", "--auth", "--login"), _USER_OPTIONS),
    (("_pw", "_pass", "_auth", "_cred"), _VARIABLES),
    (("authorization",), _HEADERS),
    (("bearer", "basic"), _BEARERS),
    (("cookie",), _COOKIES),
    (("cookie",), _COOKIE_VALUES),
    (("-p",), _BEHIND_P),
    (("oracle", "sqlplus"), _ORACLE),
    (("otp", "2fa", "mfa"), _ONE_TIME_CODES),
    (_KEY_HINTS, _SECRET_KEYS_QUOTED),
    (_KEY_HINTS, _SECRET_KEYS),
    (_KEY_HINTS, _AFTER_NAME),
    (_PASSWORD_HINTS, _PASSWORDS_QUOTED),
    (_PASSWORD_HINTS, _PASSWORDS_BARE),
    ((*_KEY_HINTS, *_PASSWORD_HINTS), _OPTIONS_QUOTED),
    ((*_KEY_HINTS, *_PASSWORD_HINTS), _OPTIONS),
    ((*_KEY_HINTS, *_PASSWORD_HINTS), _OPTIONS_LISTED),
    (_PASSWORD_HINTS, _IN_BRACES),
    (_PASSWORD_HINTS, _AFTER_PASSWORD),
    (("password",), _LOGINS),
    (("</",), _TAGGED),
    ((*_KEY_HINTS, *_PASSWORD_HINTS), _PAIRED),
    (("value",), _VALUES),
    (("username",), _USER_AND_KEY),
    (("username",), _KEY_AND_USER),
)
"""Patterns, each with texts of which one occurs in every match, in lower case.

The first group of a match is the name, which stays.
"""
_HINTS = tuple({hint for hints, _ in (*_WHOLE, *_NAMED) for hint in hints})


def holds_secret(text: str) -> bool:
    """Whether a text holds a secret, judged by its form or its name; a long value alone is none."""
    return _without_known(text) != text


def without_secrets(text: str) -> str:
    """Redact everything that looks like a secret."""
    return _LONG_VALUES.sub(_without_long_value, _without_known(text))


def _without_known(text: str) -> str:
    lower = text.lower()
    found = {hint for hint in _HINTS if hint in lower}
    for hints, pattern in _WHOLE:
        if not found.isdisjoint(hints):
            text = pattern.sub(REDACTED, text)
    if len(found) == 1:  # the empty one
        return text
    for hints, pattern in _NAMED:
        if not found.isdisjoint(hints):
            text = pattern.sub(rf"\g<1>{REDACTED}", text)
    return _BASIC.sub(_without_login, text) if "basic" in lower else text


def without_secret_arguments(words: Iterable[str]) -> tuple[str, ...]:
    """Redact the secrets of a command line, also those whose name and value are two arguments (`--api-key abcdef`)."""
    result: list[str] = []
    before = ""
    for word in words:
        if _USER_OPTION.fullmatch(before) and (found := _USER_AND_PASSWORD.fullmatch(word)):
            result.append(f"{found[1]}{REDACTED}")
        else:
            result.append(REDACTED if _is_secret_value(before, word) else without_secrets(word))
        before = word
    return tuple(result)


def secret_words(command: Sequence[str], environment: Mapping[str, str]) -> frozenset[str]:
    """The secrets that a process was started with: in its command line, and in variables with a telling name."""
    found = set()
    for word, kept in zip(command, without_secret_arguments(command), strict=True):
        before, redacted, behind = kept.partition(REDACTED)
        if redacted and REDACTED not in behind:
            found.add(word[len(before) : len(word) - len(behind)])
    for name, value in environment.items():
        if _SECRET_VALUE.fullmatch(value) and holds_secret(f"{name}={value}"):
            found.add(value)
    return frozenset(found)


def _is_secret_value(option: str, word: str) -> bool:
    """Whether an argument is the secret that the argument before it announces."""
    if _PASSWORD_OPTION.fullmatch(option):
        return not word.startswith("-")
    if _ONE_TIME_OPTION.fullmatch(option):
        return re.fullmatch(r"\d{6,8}", word) is not None
    if _OPTION_NAME.fullmatch(option) or _SHORT_OPTION.fullmatch(option):
        return _OPTION_VALUE.fullmatch(word) is not None
    return _KEY_OPTION.fullmatch(option) is not None and _LONG_KEY.fullmatch(word) is not None


def beginning(name: str) -> str:
    """Cut a long name for a message. Secrets are redacted first, because the start of one is not recognised."""
    return name if len(name) <= LONGEST_NAMED else without_secrets(name[:_LONGEST_READ])[:LONGEST_NAMED]


def _without_login(match: re.Match[str]) -> str:
    """Redact what is a user and a password in base 64, and leave words such as `basic training`."""
    try:
        login = b64decode(match[2], validate=True).decode()
    except ValueError:
        return match[0]
    return f"{match[1]}{REDACTED}" if ":" in login and login.isprintable() else match[0]


def _without_long_value(match: re.Match[str]) -> str:
    """Redact a long value that looks like a key: hexadecimal, or lower case, upper case and digits together."""
    name, value = match.groups()
    secret = _HEXADECIMAL.fullmatch(value) or all(kind.search(value) for kind in _MIXED)
    return f"{name}{REDACTED}" if secret else match[0]
