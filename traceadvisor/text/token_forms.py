"""Forms of access tokens that begin with a known prefix.

The prefixes and lengths are facts that the issuers document. The list was checked against the rules of two maintained
scanners, gitleaks 8.28 (https://github.com/gitleaks/gitleaks) and detect-secrets 1.5
(https://github.com/Yelp/detect-secrets). Lengths are lower limits: a token may become longer.
"""

from __future__ import annotations

import re

_WORD, _URL_SAFE = "[A-Za-z0-9]", "[A-Za-z0-9_-]"

_FORMS = (
    ("GitHub", rf"gh[opsur]_{_WORD}{{16,}}"),
    ("GitHub", r"github_pat_[A-Za-z0-9_]{16,}"),
    ("GitLab", rf"gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas|ffct)-{_URL_SAFE}{{16,}}"),
    ("GitLab", rf"GR1348941{_URL_SAFE}{{16,}}"),
    ("Hugging Face", rf"(?:hf|api_org)_{_WORD}{{16,}}"),
    ("AWS", r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{12,}"),
    ("AWS Bedrock", r"ABSK[A-Za-z0-9+/]{60,}={0,2}"),
    ("Google API", rf"AIza{_URL_SAFE}{{30,}}"),
    ("Google OAuth", rf"ya29\.{_URL_SAFE}{{16,}}"),
    ("Google OAuth client", rf"GOCSPX-{_URL_SAFE}{{16,}}"),
    ("OpenAI, Anthropic, OpenRouter", rf"sk-{_URL_SAFE}{{16,}}"),
    ("Groq", rf"gsk_{_WORD}{{16,}}"),
    ("xAI", rf"xai-{_WORD}{{20,}}"),
    ("Replicate", rf"r8_{_WORD}{{20,}}"),
    ("Perplexity", rf"pplx-{_WORD}{{20,}}"),
    ("Together", rf"tgp_v1_{_URL_SAFE}{{20,}}"),
    ("Weights & Biases", r"wandb_v1_[A-Za-z0-9_]{20,}"),
    ("LangSmith", r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}"),
    ("Pinecone", r"pcsk_[A-Za-z0-9_]{20,}"),
    ("NVIDIA", rf"nvapi-{_URL_SAFE}{{30,}}"),
    ("Databricks", r"dapi[a-f0-9]{32}(?:-\d)?"),
    ("HashiCorp Vault", rf"hv[sbr]\.{_URL_SAFE}{{20,}}"),
    ("HashiCorp Terraform", rf"{_WORD}{{14}}\.atlasv1\.{_URL_SAFE}{{40,}}"),
    ("Docker", rf"dckr_(?:pat|oat)_{_URL_SAFE}{{16,}}"),
    ("DigitalOcean", r"do[opr]_v1_[a-f0-9]{30,}"),
    ("npm", rf"npm_{_WORD}{{30,}}"),
    ("PyPI", rf"pypi-{_URL_SAFE}{{30,}}"),
    ("RubyGems", r"rubygems_[a-f0-9]{40,}"),
    ("Slack", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("Slack", r"xapp-\d-[A-Za-z0-9-]{10,}"),
    ("Slack webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9_/-]{20,}"),
    ("Discord webhook", rf"discord(?:app)?\.com/api/webhooks/\d{{10,}}/{_URL_SAFE}{{20,}}"),
    ("Discord bot", rf"[MNO][DTjz][A-Zcgk]{_URL_SAFE}{{21,23}}\.{_URL_SAFE}{{6}}\.{_URL_SAFE}{{27,}}"),
    ("Telegram bot", rf"\d{{8,10}}:{_URL_SAFE}{{35}}"),
    ("Microsoft Teams webhook", r"[a-z0-9-]{1,63}\.webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{20,}"),
    ("Stripe", rf"(?:sk|rk)_(?:live|test|prod)_{_WORD}{{10,}}"),
    ("Stripe webhook", rf"whsec_{_WORD}{{20,}}"),
    ("Square", rf"sq0(?:csp|atp)-{_URL_SAFE}{{20,}}"),
    ("Shopify", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    ("SendGrid", rf"SG\.{_URL_SAFE}{{16,}}\.{_URL_SAFE}{{16,}}"),
    ("Twilio", r"SK[0-9a-f]{32}"),
    ("Mailgun", r"key-[0-9a-f]{32}"),
    ("Mailchimp", r"[0-9a-f]{32}-us\d{1,2}"),
    ("Notion", rf"ntn_{_WORD}{{30,}}"),
    ("Linear", rf"lin_api_{_WORD}{{30,}}"),
    ("Postman", r"PMAK-[A-Za-z0-9-]{40,}"),
    ("Atlassian", rf"AT[AC]TT3{_URL_SAFE}{{20,}}"),
    ("HubSpot", r"pat-(?:na|eu)\d-[A-Za-z0-9-]{20,}"),
    ("New Relic", r"NRAK-[A-Z0-9]{20,}"),
    ("Grafana", rf"(?:glsa|glc)_{_URL_SAFE}{{20,}}"),
    ("Sentry", r"sntry[su]_[A-Za-z0-9+/=_-]{20,}"),
    ("Dynatrace", r"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{20,}"),
    ("Doppler", rf"dp\.(?:pt|st|ct|sa|scim|audit)\.{_URL_SAFE}{{20,}}"),
    ("PlanetScale", rf"pscale_(?:tkn|pw|oauth)_{_URL_SAFE}{{20,}}"),
    ("Supabase", r"sbp_[a-f0-9]{40}"),
    ("Tailscale", r"tskey-[a-z]{1,12}-[A-Za-z0-9-]{16,}"),
    ("Fly.io", rf"(?:fo1_{_URL_SAFE}{{20,}}|fm(?:1[ar]|2)_[A-Za-z0-9+/=]{{20,}})"),
    ("Netlify", rf"nfp_{_WORD}{{30,}}"),
    ("age", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    ("JSON Web Token", r"eyJ[A-Za-z0-9_-]{8,400}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
)
"""Issuer and form of each kind of token."""

_BEGIN = r"(?:\b|(?<=\\u[0-9a-fA-F]{4})|(?<=\\x[0-9a-fA-F]{2})|(?<=\\[nrt]))"
"""The start of a word; also after an escape, because some texts are escaped twice."""

TOKENS = re.compile(rf"{_BEGIN}(?:{'|'.join(form for _, form in _FORMS)})")
