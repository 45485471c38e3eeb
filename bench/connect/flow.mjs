// Connects accounts in a real browser with an independent OAuth server: `oidc-provider` acts as a Mastodon server and as
// Tumblr, and checks redirect URIs, codes, PKCE and scopes. scripts/connect-flow starts Crier and runs this:
//
//   node flow.mjs PUBLIC_PORT PROVIDER_PORT SCREENSHOTS CRIER API_PORT [API_PORT]
//
// Browsers reach Crier at PUBLIC_PORT, which forwards requests to each API_PORT in turn. CRIER is a command that runs
// `crier` with the settings of the installation.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, rmSync } from 'node:fs'
import http from 'node:http'
import assert from 'node:assert/strict'
import { Provider } from 'oidc-provider'
import { chromium } from 'playwright-core'

const [publicPort, providerPort, screenshots, crier, ...apiPorts] = process.argv.slice(2)
const callback = (platform) => `http://127.0.0.1:${publicPort}/connect/callback/${platform}`
const issuer = `http://127.0.0.1:${providerPort}`
const mastodonScopes = ['profile', 'read:statuses', 'read:notifications', 'write:statuses', 'write:media']

// --- The OAuth server, and as much of the two platforms as a connect needs ------------------------------------------

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'tumblr-app',
      client_secret: 'tumblr-secret',
      redirect_uris: [callback('tumblr')],
      grant_types: ['authorization_code', 'refresh_token'],
      token_endpoint_auth_method: 'client_secret_post',
      scope: 'basic write offline_access',
    },
  ],
  scopes: [...mastodonScopes, 'basic', 'write', 'offline_access'],
  routes: { authorization: '/oauth/authorize', token: '/oauth/token', revocation: '/oauth/revoke' },
  features: { devInteractions: { enabled: true }, revocation: { enabled: true } },
  pkce: { required: (_ctx, client) => client.clientId !== 'tumblr-app' },
  clientBasedCORS: () => false,
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  cookies: { keys: ['only for this run'] },
})
provider.on('server_error', (_ctx, error) => console.error(error))

const json = (res, status, body) => {
  res.writeHead(status, { 'content-type': 'application/json' })
  res.end(JSON.stringify(body))
}

const bodyOf = async (req) => {
  const chunks = []
  for await (const chunk of req) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}

// Mastodon's registration of applications is older than the standard and differs from it.
const registerMastodonApp = async (req, res) => {
  const app = JSON.parse(await bodyOf(req))
  const id = `mastodon-${createHash('sha256').update(app.redirect_uris).digest('hex').slice(0, 12)}`
  const client = {
    client_id: id,
    client_secret: `${id}-secret-of-some-length`,
    client_name: app.client_name,
    redirect_uris: [app.redirect_uris],
    grant_types: ['authorization_code'],
    token_endpoint_auth_method: 'client_secret_post',
    scope: app.scopes,
  }
  await provider.Client.adapter.upsert(id, client)
  json(res, 200, { id: '1', ...client })
}

const person = async (req) => {
  const token = (req.headers.authorization ?? '').replace('Bearer ', '')
  return (await provider.AccessToken.find(token))?.accountId
}

const blogs = ['bakery', 'mill'].map((name) => ({
  name,
  title: `The ${name}`,
  url: `https://${name}.tumblr.example/`,
  uuid: `t:${name}`,
  admin: true,
}))

const handle = provider.callback()
const platforms = http.createServer(async (req, res) => {
  const path = new URL(req.url, issuer).pathname
  if (path === '/api/v1/apps') return registerMastodonApp(req, res)
  if (path === '/api/v1/accounts/verify_credentials') {
    const id = await person(req)
    if (!id) return json(res, 401, { error: 'The access token is invalid' })
    return json(res, 200, { id: '7', username: id, display_name: 'Ann Baker', url: `${issuer}/@${id}`, avatar: null })
  }
  if (path === '/v2/user/info') {
    if (!(await person(req))) return json(res, 401, { meta: { status: 401, msg: 'Unauthorized' } })
    return json(res, 200, { meta: { status: 200, msg: 'OK' }, response: { user: { name: 'ann', blogs } } })
  }
  // The paths of Tumblr on the same server. It grants offline access only after a prompt for consent.
  req.url = req.url.replace(/^\/oauth2\/authorize\?/, '/oauth/authorize?prompt=consent&')
  req.url = req.url.replace(/^\/v2\/oauth2\/token/, '/oauth/token')
  return handle(req, res)
})

// --- The public address, with a request for each replica in turn ----------------------------------------------------

let turn = 0
const served = new Map(apiPorts.map((port) => [port, 0]))
// A callback that another browser opens first.
let steal = false
let stolen
const front = http.createServer((req, res) => {
  if (steal && req.url.startsWith('/connect/callback/')) {
    steal = false
    stolen = `http://127.0.0.1:${publicPort}${req.url}`
    res.writeHead(503)
    return res.end()
  }
  const port = apiPorts[turn++ % apiPorts.length]
  served.set(port, served.get(port) + 1)
  const options = { port, host: '127.0.0.1', path: req.url, method: req.method, headers: req.headers }
  const onward = http.request(options, (answer) => {
    res.writeHead(answer.statusCode, answer.headers)
    answer.pipe(res)
  })
  onward.on('error', () => res.destroy())
  req.pipe(onward)
})

// --- The person -----------------------------------------------------------------------------------------------------

const PHONE = { width: 390, height: 844 }
const DESKTOP = { width: 1280, height: 800 }

const shoot = async (page, name) => {
  for (const [size, viewport] of Object.entries({ phone: PHONE, desktop: DESKTOP })) {
    await page.setViewportSize(viewport)
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)
    assert.equal(wide, false, `${name} fits a ${size}`)
    await page.screenshot({ path: `${screenshots}/connect-${name}-${size}.png`, fullPage: true })
  }
}

const heading = (page) => page.locator('h1').innerText()

// Signs in at the provider, and approves the request.
const agree = async (page) => {
  await page.fill('input[name=login]', 'ann')
  await page.fill('input[name=password]', 'any')
  await page.click('button[type=submit]')
  await page.click('button[type=submit]')
}

const flow = async (browser, name, url) => {
  const context = await browser.newContext({ javaScriptEnabled: false })
  // The provider's pages request fonts from other servers.
  await context.route((address) => address.hostname !== '127.0.0.1', (route) => route.abort())
  const page = await context.newPage()
  page.setDefaultTimeout(15_000)
  const problems = []
  page.on('pageerror', (error) => problems.push(String(error)))
  // Errors of our pages only, because the provider's pages have some.
  page.on('console', (message) => {
    if (message.location().url.startsWith(`http://127.0.0.1:${publicPort}/`)) problems.push(message.text())
  })
  await page.goto(url)
  await shoot(page, `${name}-open`)
  await page.locator('form button').last().click()
  return { context, page, problems }
}

const run = (...args) => execFileSync('sh', ['-c', `${crier} "$@"`, 'sh', ...args], { encoding: 'utf8' }).trim()

// Creates the brand through the API.
const createBrand = async () => {
  const headers = {
    authorization: `Bearer ${run('key', 'create', '--user', 'owner@localhost')}`,
    'content-type': 'application/json',
    'idempotency-key': 'brand',
  }
  const address = `http://127.0.0.1:${publicPort}/api/public/v1/brands`
  const response = await fetch(address, { method: 'POST', headers, body: JSON.stringify({ name: 'Bakery' }) })
  assert.equal(response.status, 201, await response.clone().text())
  return String((await response.json()).data.id)
}

const connectMastodon = async (browser, brand) => {
  const url = run('account', 'connect', 'mastodon', '--brand', brand, '--instance', issuer)
  // Another browser cannot use the callback.
  const { context, page, problems } = await flow(browser, 'mastodon', url)
  await page.waitForURL(`${issuer}/**`)
  steal = true
  await agree(page)
  assert.ok(stolen, 'the person came back')
  const thief = await (await browser.newContext({ javaScriptEnabled: false })).newPage()
  await thief.goto(stolen)
  assert.match(await heading(thief), /browser/i)
  await shoot(thief, 'mastodon-other-browser')
  await page.goto(stolen)
  assert.match(await heading(page), /connected/i)
  await shoot(page, 'mastodon-done')
  // The link is used up.
  await page.goto(url)
  await shoot(page, 'mastodon-used')
  assert.deepEqual(problems.filter((text) => !/410|503/.test(text)), [])
  await context.close()
}

const connectTumblr = async (browser, brand) => {
  const url = run('account', 'connect', 'tumblr', '--brand', brand)
  // A refusal does not use up the link.
  const denied = await flow(browser, 'tumblr', url)
  await denied.page.waitForURL(`${issuer}/**`)
  await denied.page.click('a[href*="/abort"]')
  assert.match(await heading(denied.page), /nothing was connected/i)
  await shoot(denied.page, 'tumblr-denied')
  await denied.context.close()

  const { context, page, problems } = await flow(browser, 'tumblr', url)
  await page.waitForURL(`${issuer}/**`)
  await agree(page)
  assert.match(await heading(page), /choose/i)
  await shoot(page, 'tumblr-choose')
  await page.check('input[value="t:mill"]')
  await page.click('button:has-text("Connect")')
  assert.match(await heading(page), /connected/i)
  await shoot(page, 'tumblr-done')
  assert.deepEqual(problems, [])
  await context.close()
}

await new Promise((resolve) => platforms.listen(Number(providerPort), '127.0.0.1', resolve))
await new Promise((resolve) => front.listen(Number(publicPort), '127.0.0.1', resolve))
rmSync(screenshots, { recursive: true, force: true })
mkdirSync(screenshots, { recursive: true })
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] })
try {
  const brand = await createBrand()
  await connectMastodon(browser, brand)
  await connectTumblr(browser, brand)
  const accounts = JSON.parse(run('account', 'list', '--json')).filter(({ platform }) => platform !== 'sandbox')
  const found = accounts.map(({ platform, name, status }) => `${platform} ${name} ${status}`).sort()
  assert.deepEqual(found, ['mastodon Ann Baker active', 'tumblr The mill active'])
  assert.ok([...served.values()].every((count) => count > 0), 'every replica served a step')
  console.log(`connected ${found.join(', ')}; requests by replica: ${[...served.values()].join(', ')}`)
} finally {
  await browser.close()
  platforms.close()
  front.close()
}
process.exit(0)
