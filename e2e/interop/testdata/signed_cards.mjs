// Verifies every card of a hub with the signature verifier of @a2a-js/sdk 1.x.
// AGENT_URL is an agent's endpoint, HUB_URL the hub's base, AGENT_TOKEN a caller's token.
import { webcrypto } from 'node:crypto';
import { verifyAgentCardSignature } from '@a2a-js/sdk';

globalThis.crypto ??= webcrypto; // which Node 18 has not got, the one of Debian 12
const { AGENT_URL, HUB_URL, AGENT_TOKEN } = process.env;
console.debug = () => {}; // the SDK tells of each signature that does not fit

async function get(url) {
  const res = await fetch(url, { headers: { Authorization: `Bearer ${AGENT_TOKEN}` } });
  if (!res.ok) throw new Error(`${url}: ${res.status}`);
  return res.json();
}

const verify = verifyAgentCardSignature(async (kid, jku) => {
  if (jku !== `${HUB_URL}/.well-known/jwks.json`) throw new Error(`jku is ${jku}`);
  return (await get(jku)).keys.find((key) => key.kid === kid);
});

for (const url of [
  `${AGENT_URL}/.well-known/agent-card.json`, `${AGENT_URL}/extendedAgentCard`,
  `${HUB_URL}/.well-known/agent-card.json`, `${HUB_URL}/a/hub/extendedAgentCard`,
]) {
  const card = await get(url);
  await verify(card);
  card.name = 'Somebody else';
  let accepted = true;
  try {
    await verify(card);
  } catch {
    accepted = false;
  }
  if (accepted) throw new Error(`${url}: a forged card is accepted`);
}
