// A real OpenID provider (npm oidc-provider) on loopback, for tests of signing in. Options come as JSON on the command
// line; the first line that it prints is JSON with its issuer. Accounts are whatever name signs in, by plain forms.
// TOOLFOLD_TEST_LEDGER names a file for all that it issued, one a line: after the tests no other file may hold any.
// Besides OAuth it answers GET /_counts (granted tokens by grant type; exchanges with refused ones as `asked`, and by the
// `jti` of the token that was given) and POST /_revoke (ends every grant).
import { createPublicKey, generateKeyPairSync, verify } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const library = `${process.env.TOOLFOLD_TEST_NODE}/node_modules/oidc-provider/lib/index.js`;
const { default: Provider, errors } = await import(pathToFileURL(library));

const options = {
  ttl: 3600, // seconds that an access token lives
  scopes: ['mcp:read', 'mcp:write'],
  clients: [],
  claims: {}, // account to further claims of its tokens
  registration: true,
  device: true,
  format: 'jwt',
  exchange: false, // whether it offers token exchange (RFC 8693)
  exchangeTtl: 0, // seconds that an exchanged token lives; 0: as others
  echo: false, // whether it answers with the very token that it was given
  refuse: {}, // account to how many exchanges of its tokens are refused
  ...JSON.parse(process.argv[2] ?? '{}'),
};
const jwks = {
  keys: ['RS256', 'ES256'].map((alg) => {
    const pair = alg === 'RS256'
      ? generateKeyPairSync('rsa', { modulusLength: 2048 })
      : generateKeyPairSync('ec', { namedCurve: 'P-256' });
    return { ...pair.privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: alg };
  }),
};
const counts = {};
const grants = new Set();
const server = createServer();
const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const EXCHANGE_PARAMETERS = ['subject_token', 'subject_token_type', 'requested_token_type', 'resource', 'scope'];
const SECRETS = ['access_token', 'refresh_token', 'id_token', 'code', 'code_verifier', 'device_code'];

// The end of a signed token is its signature, and enough to know it by.
function note(place, names = SECRETS) {
  const found = names.map((name) => place?.[name]).filter((value) => typeof value === 'string' && value.length >= 20);
  if (process.env.TOOLFOLD_TEST_LEDGER && found.length) {
    appendFileSync(process.env.TOOLFOLD_TEST_LEDGER, found.map((value) => `${value.slice(-43)}\n`).join(''));
  }
}

// A client that may ask gets a token of the same account for another resource, for a token that was issued here.
async function exchange(provider, ctx) {
  const { params, client } = ctx.oidc;
  counts.asked = (counts.asked ?? 0) + 1;
  if (params.subject_token_type !== ACCESS_TOKEN || client.clientAuthMethod === 'none') {
    throw new errors.CustomOIDCProviderError('invalid_request', 'a client that proves itself exchanges access tokens');
  }
  const claims = await verified(params.subject_token);
  if (!claims || options.refuse[claims.sub]-- > 0) {
    // An issuer that is careless with what it was sent.
    throw new errors.CustomOIDCProviderError('invalid_grant', `not exchanged: ${params.subject_token}`);
  }
  counts[claims.jti] = (counts[claims.jti] ?? 0) + 1;
  const token = new provider.AccessToken({
    accountId: claims.sub, client, scope: params.scope, gty: 'exchange', expiresIn: options.exchangeTtl || options.ttl,
  });
  token.resourceServer = new provider.ResourceServer(params.resource, {
    scope: options.scopes.join(' '), audience: params.resource, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } },
  });
  const value = options.echo ? params.subject_token : await token.save();
  ctx.body = {
    access_token: value, issued_token_type: ACCESS_TOKEN, token_type: 'Bearer', expires_in: token.expiration,
    scope: params.scope,
  };
}

// The claims of a token that was signed here and has not ended.
async function verified(token) {
  const [head, payload, signature] = token.split('.');
  const key = createPublicKey({ key: jwks.keys[0], format: 'jwk' });
  const good = verify('RSA-SHA256', Buffer.from(`${head}.${payload}`), key, Buffer.from(signature ?? '', 'base64url'));
  const claims = good && JSON.parse(Buffer.from(payload, 'base64url'));
  return claims && claims.exp > Date.now() / 1000 ? claims : undefined;
}

server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    jwks,
    clients: options.clients,
    scopes: ['openid', 'offline_access', ...options.scopes],
    cookies: { keys: ['only-for-tests'] },
    clientAuthMethods: ['none', 'client_secret_basic', 'client_secret_post', 'private_key_jwt'],
    conformIdTokenClaims: false,
    claims: { openid: ['sub', 'email', 'groups'] },
    findAccount: (ctx, sub) => ({
      accountId: sub,
      claims: () => ({ sub, email: `${sub}@example.com`, ...options.claims[sub] }),
    }),
    extraTokenClaims: (ctx, token) => options.claims[token.accountId ?? token.clientId],
    rotateRefreshToken: true,
    ttl: {
      AccessToken: options.ttl, ClientCredentials: options.ttl, RefreshToken: 86400, Grant: 86400, Session: 86400,
      Interaction: 600, IdToken: 600, DeviceCode: 600,
    },
    features: {
      devInteractions: { enabled: true },
      clientCredentials: { enabled: true },
      deviceFlow: { enabled: options.device },
      introspection: { enabled: true, allowedPolicy: () => true },
      revocation: { enabled: true, allowedPolicy: () => true },
      registration: { enabled: options.registration },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx, resource) => ({
          scope: options.scopes.join(' '),
          audience: resource,
          accessTokenTTL: options.ttl,
          accessTokenFormat: options.format,
          jwt: { sign: { alg: 'RS256' } },
        }),
      },
    },
  });
  if (options.exchange) {
    provider.registerGrantType(EXCHANGE, (ctx) => exchange(provider, ctx), EXCHANGE_PARAMETERS);
  }
  provider.on('grant.success', (ctx) => {
    const grant = ctx.oidc.params.grant_type;
    counts[grant] = (counts[grant] ?? 0) + 1;
    note(ctx.oidc.params);
    note(ctx.body);
  });
  for (const kind of ['authorization_code', 'device_code']) {
    provider.on(`${kind}.saved`, (token) => token.grantId && grants.add(token.grantId));
  }
  provider.on('registration_create.success', (ctx) => note(ctx.body, ['client_secret', 'registration_access_token']));
  const answer = provider.callback();
  server.on('request', async (request, response) => {
    if (request.url === '/_counts') {
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(counts));
    } else if (request.url === '/_revoke') {
      for (const id of grants) {
        await Promise.all([
          provider.RefreshToken.revokeByGrantId(id),
          provider.AccessToken.revokeByGrantId(id),
          provider.Grant.find(id).then((grant) => grant?.destroy()),
        ]);
      }
      response.end();
    } else {
      answer(request, response);
    }
  });
  console.log(JSON.stringify({ issuer }));
});
// The test's process holds our standard input: when it ends, however that happens, so do we.
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
