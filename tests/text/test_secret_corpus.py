"""Every secret that is known to leak into command lines and messages, in every surrounding in which it occurs."""

import pytest

from traceadvisor.text.cleaning import clean
from traceadvisor.text.documents import secret_members
from traceadvisor.text.secrets import without_secret_arguments

HEX = "0123456789abcdef"
MIXED = "abcdefghijABCDEFGHIJ0123456789_klmno"
PLAIN = "abcdefghijABCDEFGHIJ0123456789"

TOKENS = {
    "Stripe": f"sk_live_{PLAIN}",
    "Google OAuth client": f"GOCSPX-{MIXED}",
    "Google OAuth": f"ya29.{MIXED}",
    "Groq": f"gsk_{PLAIN}",
    "Replicate": f"r8_{PLAIN}",
    "Vault": f"hvs.{MIXED}",
    "Databricks": f"dapi{HEX}{HEX}",
    "SendGrid": f"SG.{MIXED[:22]}.{MIXED}",
    "xAI": f"xai-{PLAIN}",
    "Docker": f"dckr_pat_{MIXED}",
    "GitHub": f"ghp_{PLAIN}012345",
    "Hugging Face": f"hf_{PLAIN}ABCD",
    "AWS": "AKIAIOSFODNN7EXAMPLE",
    "Slack": "xoxb-123456789012-abcdefghijkl",
}
"""Tokens that their form betrays. The forms are those of gitleaks and detect-secrets."""

SURROUNDINGS = (
    "{}",
    "login failed for {}",
    "--hub-token={}",
    "--hub-token {}",
    "X={}",
    '{{"x": "{}"}}',
    "x='{}'",
    "Authorization: token {}",
    "https://{}@host/x",
    "https://host/x?key={}",
    "call({})",
    "[{}]",
    "{};",
    "{},",
    "a\n{}\nb",
    "run_{}",
    "https://host/x%20{}",
)


@pytest.mark.parametrize("token", TOKENS.values(), ids=list(TOKENS))
def test_a_token_is_redacted_in_every_surrounding(token: str) -> None:
    assert [text for text in SURROUNDINGS if token[6:] in clean(text.format(token))] == []


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n{}\n-----END PGP PRIVATE KEY BLOCK-----",
        "https://{}@host",
        "redis://:{}@h",
        "redis://:{}@x@h:6379",
        "user:{}p@ss@host",
        "mysql --password {} -h host",
        "mysql --password '{} and more' -h host",
        'mysql --password "{} and more" -h host',
        "MYSQL_PWD={}",
        "DB_PASS={}",
        "DB_PASS={}!,;x",
        "LDAP_BIND_PW={}",
        "REDIS_AUTH={}",
        "Authorization: token {}",
        "Authorization: Basic {}",
        "Authorization: Bearer {}",
        "Proxy-Authorization: Digest {}",
        "Cookie: session={}; theme=dark",
        "Set-Cookie: a={}",
        "{{'api_key': b'{}'}}",
        '"token": "{} with words"',
        "token={}",
        "secret={}",
        "+wandb.api_key={}",
        "api key: {}1234",
        "?token={}",
        "&password={}",
        "jdbc:mysql://h/db?user=a&password={}",
        "curl --user ada:{} https://host",
        "curl -u ada:{} https://host",
        "mongodb+srv://ada:{}%40x@host/db",
        "password='{}'",
        "passwd={}",
        "--db-password={}",
        "postgres://ada:{}/more@host/db",
        "redis://:a/b?{}@h:6379/0",
        "['train.py', '--api-key', '{}xyqzq']",
        '["--db-password", "{}"]',
        'cmd: "[\\"--password\\", \\"{}\\"]"',
        "('--password','{}', '--epochs', '3')",
        "https://host/login?next=%2Fx%3Fpassword%3D{}",
        "redirect=%3Fapi_key%3D{}xyqzq",
        "u%26token%3d{}",
        "passwd%3A%20{}",
        '{{"username":"ada","key":"{}"}}',
        "{{'username': 'ada', 'key': '{}'}}",
        '{{"key": "{}", "username": "ada"}}',
        "kaggle_key: {}xyqzq",
        '{{\\"db_password\\": \\"{}\\"}}',
        '{{\\\\\\"password\\\\\\": \\\\\\"{} and more\\\\\\"}}',
        "password=b'{}'",
        "password='{}",
        "password => '{}'",
        "password\uff1a{}",
        "PWD={{{}}};",
        "('password', '{}')",
        '["db_password", "{}"]',
        "('api_key', '{}1xyqzq')",
        "<Password>{}</Password>",
        'config["password"]={}',
        "os.environ['DB_PASSWORD'] = '{}'",
        "params[password]={}",
        "set_password('{}')",
        "--dbPassword {}",
        "--hubToken {}xyqzq",
        "{{'user': 'ada', 'pass': '{}'}}",
        '{{"auths": {{"registry": {{"auth": "{}xyqzq"}}}}}}',
        '{{"name": "DB_PASSWORD", "value": "{}"}}',
        "- name: DB_PASSWORD\n  value: {}",
        "machine host login ada password {}",
        "refused with password {}xyq0",
        "the password is {}xyq0",
        "Passwort: {}",
        "session_id={}",
        "Ocp-Apim-Subscription-Key: {}xyqzq",
        "MASTER_KEY={}",
        "https:/ada:{}@host/x",
        "mysql -u ada -p{} db",
        "['mysqldump', '-uada', '-p{}', 'db']",
        "sshpass -p {} ssh host",
        "requests.get(url, cookies={{'sid': '{}'}})",
        "--cookie sid={}; theme=dark",
        "('Set-Cookie', 'sid={}')",
        "cookie=sid={}",
        "(b'Authorization', b'Basic {}')",
        "jdbc:oracle:thin:scott/{}@//host:1521/x",
        "sqlplus -s scott/{}@host",
        "--secretKey {}xyqzq",
    ],
)
def test_a_secret_is_redacted_by_what_stands_around_it(text: str) -> None:
    secrets = ("xyq", "xyqzzqyx", "xyq0XYQ!zz$")
    assert [secret for secret in secrets if "xyq" in clean(text.format(secret))] == []


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("--otp 123456", "123456"),
        ("{'otp': '123456'}", "123456"),
        ("mfa_code=123 456", "456"),
        ("2FA: 12345678", "12345678"),
        ("cookie=a1b2c3d4", "a1b2"),
        ("session_cookie: 'a1b2c3d4'", "a1b2"),
        ("sent Basic YWRhOnhZUQ==", "YWRh"),
    ],
)
def test_a_short_secret_is_redacted_by_its_name_and_form(text: str, secret: str) -> None:
    assert secret not in clean(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://hooks.slack.com/services/T000/B000/xyqabcdefghijklmnopqrstu",
        "https://a.blob.core.windows.net/c?sv=1&sig=xyq%2Fabcd%3D",
        "SharedAccessSignature=sv=1&sig=xyq%2Fabcd%3D",
        "AccountName=a;AccountKey=xyq+/==;Suffix=b",
        "https%3A%2F%2Fada%3Axyq%40host%2Fx",
        "next=%2Fhome%2Fxyq%2Fx",
    ],
)
def test_a_secret_in_an_address_is_redacted(text: str) -> None:
    assert "xyq" not in clean(text)


@pytest.mark.parametrize(
    "home",
    [
        "/home/xyq",
        "/var/home/xyq",
        "/export/home/xyq",
        "/home2/xyq",
        "/mnt/nfs/home/xyq",
        "/nfs/users/xyq",
        "/Users/xyq",
        "/home/xyq xyq",
        "/Users/xyq von xyq",
        r"C:\Users\xyq xyq",
        r"C:\\Users\\xyq",
        r"\\server\Users\xyq",
    ],
)
def test_a_home_directory_names_nobody(home: str) -> None:
    separator = "\\" if "\\" in home else "/"
    assert "xyq" not in clean(f"open {home}{separator}train.py failed")


@pytest.mark.parametrize(
    "words",
    [
        ("--password", "xyq"),
        ("--hub-token", "xyq"),
        ("--hub-token=xyq"),
        ("--passwd=xyq"),
        ("--auth", "ada:xyq"),
        ("-u", "ada:xyq"),
        ("--hf-auth", "xyq"),
        ("--pw", "xyq"),
        ("--wandb_key", f"xyq{HEX}{HEX}"),
        ("--secretKey", "xyq"),
        ("--header", "Authorization: token xyq"),
        ("--db", "postgres://ada:xyq@host"),
        ('{"password": "xyq"}',),
        ("-c", "python train.py --password xyq"),
    ],
)
def test_an_argument_that_is_a_secret_is_redacted(words: tuple[str, ...]) -> None:
    assert "xyq" not in " ".join(without_secret_arguments(("train.py", *words)))


@pytest.mark.parametrize(
    "text",
    [
        "token_type=bpe",
        "tokenizer=bert-base",
        "--max-tokens 4096",
        "max_tokens=4096",
        "python -u train.py",
        "docker run -u 1000:1000 image",
        "monkey=banana",
        "?step=3&x=1",
        "compass=north",
        "void at::native::softmax<token>(int)",
        "key-value cache: attention",
        "sort_key=name",
        "author: Ada",
        "/homework/ada/x.py",
        "/opt/users.py",
        "Bearer of good news",
        "https://host:8080/path@v2/x",
        "http://[::1]:6006/x@y",
        "file:///data/x:y@z",
        "['--max-tokens', '4096']",
        "['--tokenizer', 'bert-base']",
        "('--token', 'none')",
        "['--password', '--epochs']",
        '{"key": "value"}',
        "{'key': 'attention.query'}",
        "100%3D",
        "keys%3D4",
        "export_sk_model_of_users",
        "['token', 'mask', 'position']",
        "pass: 3",
        "forward pass 12ms",
        "s3:/bucket/key@v2",
        "the password is wrong",
        "name: token_count, value: 3",
        "authors: [ada]",
        "find . -name mysql -print",
        "docker run --name mysql -p 3306:3306",
        "docker run mysql -p3306:3306",
        "mysql --port 3306",
        "mkdir -p runs",
        "Basic training",
        "Basic block of the network",
        "cookies=True",
        "cookie policy=strict",
        "cookie=/etc/file1.txt",
        "robotpose 123456",
        "otp: 26",
        "jdbc:postgresql://host/db@x",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    "words", [("--key", "name"), ("--pass", "2"), ("-u", "train.py"), ("-u", "1000:1000"), ("--token", "none")]
)
def test_ordinary_arguments_stay(words: tuple[str, ...]) -> None:
    assert without_secret_arguments(words) == words


@pytest.mark.parametrize("token", TOKENS.values(), ids=list(TOKENS))
def test_a_file_that_holds_a_token_is_named(token: str) -> None:
    assert secret_members({"a": {"b": ["x", token]}}) == ["a.b"]
