"""Signs a card as an agent does that is made with a2a-sdk, 1.x or 0.3, and prints it as
the SDK serves it, with the keys that verify it. BASE is where both are served."""

import json
import os

from a2a.utils.signing import create_agent_card_signer
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

base = os.environ["BASE"]
skill = {"id": "sort", "name": "Sört", "description": "By any column", "tags": ["csv"], "examples": ["Sort <this> & that."]}
try:
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict
    from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentProvider, AgentSkill

    card = AgentCard(
        name="Sorter",
        description="Sorts “tables” of 𐀀.",
        version="1.0.0",
        provider=AgentProvider(organization="Org", url="https://org.example"),
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/csv"],
        default_output_modes=["text/csv"],
        skills=[AgentSkill(**skill)],
        supported_interfaces=[
            AgentInterface(protocol_binding="JSONRPC", url=base + "/", protocol_version="1.0"),
            AgentInterface(protocol_binding="JSONRPC", url=base + "/", protocol_version="0.3"),
        ],
    )
    served = agent_card_to_dict
except ImportError:  # 0.3
    from a2a.types import AgentCapabilities, AgentCard, AgentProvider, AgentSkill

    card = AgentCard(
        name="Sorter",
        description="Sorts “tables” of 𐀀.",
        version="1.0.0",
        url=base + "/",
        provider=AgentProvider(organization="Org", url="https://org.example"),
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/csv"],
        default_output_modes=["text/csv"],
        skills=[AgentSkill(**skill)],
    )
    served = lambda card: card.model_dump(mode="json", exclude_none=True, by_alias=True)

private = ec.generate_private_key(ec.SECP256R1())
public = ECAlgorithm.to_jwk(private.public_key(), as_dict=True) | {"kid": "k1", "alg": "ES256", "use": "sig"}
header = {"kid": "k1", "alg": "ES256", "jku": base + "/keys", "typ": "JOSE"}
card = create_agent_card_signer(private, header)(card)
print(json.dumps({"card": served(card), "keys": {"keys": [public]}}))
