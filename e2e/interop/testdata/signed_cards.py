"""Verifies every card of a hub with the signature verifier of a2a-sdk, 1.x or 0.3.

AGENT_URL is an agent's endpoint, HUB_URL the hub's base, AGENT_TOKEN a caller's token.
"""

import os

import httpx
import jwt
from a2a.utils.signing import SignatureVerificationError, create_signature_verifier

try:
    from a2a.client.card_resolver import parse_agent_card

    PATHS = ["/.well-known/agent-card.json", "/extendedAgentCard"]
    HUB_PATHS = ["/.well-known/agent-card.json", "/a/hub/extendedAgentCard"]
except ImportError:  # 0.3
    from a2a.types import AgentCard

    parse_agent_card = AgentCard.model_validate
    PATHS = ["/.well-known/agent.json", "/v1/card"]
    HUB_PATHS = []

http = httpx.Client(headers={"Authorization": "Bearer " + os.environ["AGENT_TOKEN"]})
hub = os.environ["HUB_URL"]


def key(kid, jku):
    assert jku == hub + "/.well-known/jwks.json", jku
    return jwt.PyJWKSet.from_dict(http.get(jku).raise_for_status().json())[kid]


verify = create_signature_verifier(key, ["ES256"])
urls = [os.environ["AGENT_URL"] + path for path in PATHS] + [hub + path for path in HUB_PATHS]
for url in urls:
    card = http.get(url).raise_for_status().json()
    verify(parse_agent_card(card))
    card["name"] = "Somebody else"
    try:
        verify(parse_agent_card(card))
    except SignatureVerificationError:
        continue
    raise SystemExit(f"{url}: a forged card is accepted")
