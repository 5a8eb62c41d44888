// Looks at what the page shows without jobs, rights, a connection or a session: states.mjs URL EMPTY-URL NOBODY-URL NAMESPACE
import assert from 'node:assert/strict'
import { both, end, go, isAccessible, open, picture, step } from './browser.mjs'

const [address, emptyAddress, nobodyAddress, namespace] = process.argv.slice(2)
const origin = new URL(address).origin
const page = await open(address)
await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])

/** isFine looks at a state in both sizes and themes. */
async function isFine(at, name) {
  await both(at, async (mode) => {
    await picture(at, `web-state-${name}-${mode}`)
    await isAccessible(at)
    assert.ok(await at.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${mode}: it is wider than the screen`)
  })
}

await step('a page of another version than the operator says so, once', async () => {
  await page.getByText(/^The operator is v2\.7\.0, and this page is /).waitFor()
  await isFine(page, 'versions')
  await page.getByRole('button', { name: 'Understood' }).click()
  await page.getByText(/^The operator is v2\.7\.0/).waitFor({ state: 'detached' })
  await page.reload()
  await page.getByRole('link', { name: 'pong', exact: true }).waitFor()
  assert.equal(await page.getByText(/^The operator is/).count(), 0)
})
await step('without jobs, a command creates the first one', async () => {
  const empty = await open(emptyAddress)
  const problem = empty.getByRole('region', { name: 'There are no jobs yet' })
  await problem.getByText(/^kubectl di run hello -n /).waitFor()
  await empty.context().grantPermissions(['clipboard-read', 'clipboard-write'])
  await problem.getByRole('button', { name: 'Copy' }).click()
  await problem.getByRole('button', { name: 'Copied' }).waitFor()
  assert.match(await empty.evaluate(() => navigator.clipboard.readText()), /^kubectl di run hello /)
  await isFine(empty, 'empty')
  await empty.context().close()
})
await step('what is loaded has its shape first', async () => {
  const slow = await page.context().newPage()
  for (const view of ['#/jobs', '#/cluster', `#/jobs/${namespace}/pong`]) {
    await slow.route('**/stream*', () => {})
    await slow.goto('about:blank')
    await slow.goto(`${origin}/${view}`)
    await slow.locator('.skeleton').first().waitFor()
    await isFine(slow, `loading-${view.replace(/\W+/g, '-')}`)
  }
  await slow.close()
})
await step('a connection that is lost is said, and tried again at once', async () => {
  const other = await page.context().newPage()
  await other.route('**/api/**', (route) => route.abort())
  await other.goto(`${origin}/#/jobs/${namespace}/pong`)
  const problem = other.getByRole('region', { name: 'There is no connection' })
  await problem.waitFor()
  await isFine(other, 'lost')
  await other.unroute('**/api/**')
  await problem.getByRole('button', { name: 'Try now' }).click()
  await other.getByRole('heading', { name: 'Conditions' }).waitFor()
  await other.close()
})
await step('views that cannot be loaded are loaded once there is a connection', async () => {
  const other = await page.context().newPage()
  await other.route('**/views.js', (route) => route.abort())
  await other.goto(`${origin}/#/cluster`)
  await other.getByRole('region', { name: 'There is no connection' }).waitFor()
  await isFine(other, 'no-views')
  await other.unroute('**/views.js')
  await other.getByRole('heading', { name: 'Cluster', level: 1 }).waitFor()
  await other.close()
})
await step('a job that does not exist has near ones', async () => {
  await page.evaluate((hash) => (location.hash = hash), `#/jobs/${namespace}/pomg`)
  const problem = page.getByRole('region', { name: `There is no job pomg in namespace ${namespace}` })
  await problem.waitFor()
  await isFine(page, 'no-job')
  await problem.getByRole('link', { name: 'pong', exact: true }).click()
  await page.getByRole('heading', { name: 'Conditions' }).waitFor()
})
await step('an address without a view says so', async () => {
  await page.goto(`${origin}/no/such/view`)
  await page.getByText('There is no such view').waitFor()
  await page.getByText('/no/such/view').waitFor()
  await isFine(page, 'unknown')
  await page.getByRole('link', { name: 'All jobs' }).click()
  await page.getByRole('link', { name: 'pong', exact: true }).waitFor()
})
await step('a right that is missing is named, with the commands that give it', async () => {
  const nobody = await open(nobodyAddress)
  await go(nobody, `#/jobs/${namespace}/pong`, `You may not get dijobs in namespace ${namespace}`)
  await nobody.getByText(`kubectl -n ${namespace} create rolebinding kubectl-di-get-dijobs --role=kubectl-di-get-dijobs --user=nina`).waitFor()
  await isFine(nobody, 'no-right')
  await go(nobody, '#/cluster', 'You may not list the nodes')
  await nobody.getByText('Commands that give these rights').click()
  await nobody.getByText(/create clusterrole kubectl-di-list(-watch)?-nodes/).waitFor()
  await isFine(nobody, 'no-nodes')
  await nobody.context().close()
})
await step('who has no session sees how the page is opened', async () => {
  const stranger = await open(`${origin}/`)
  await stranger.getByRole('heading', { name: 'This page is not open here' }).waitFor()
  await stranger.getByText('kubectl di ui --open').waitFor()
  await isFine(stranger, 'not-open')
  await stranger.context().close()
  const [cookie] = await page.context().cookies()
  await page.context().clearCookies()
  await page.evaluate((hash) => (location.hash = hash), `#/jobs/${namespace}/pong`)
  await page.getByRole('region', { name: 'You are not signed in' }).first().waitFor()
  await isFine(page, 'signed-out')
  await page.context().addCookies([cookie])
})
await end()
