// Loses the API server and regains it, in two views: lost.mjs URL CONTROL-URL NAMESPACE
import assert from 'node:assert/strict'
import { both, end, isAccessible, open, picture, step } from './browser.mjs'

const [address, control, namespace] = process.argv.slice(2)
const table = await open(address)
const job = await table.context().newPage()
await job.goto(`${new URL(address).origin}/#/jobs/${namespace}/pong`)
const lost = (page) => page.getByText(/Connection lost, showing state of/)

/** request asks the test for a change of the cluster. */
async function request(what) {
  assert.ok((await fetch(`${control}/${what}`)).ok, what)
}

await step('both views show the job', async () => {
  await table.getByRole('row').filter({ hasText: 'pong' }).getByText('Starting').waitFor()
  await job.locator('.headline').getByText('Starting').waitFor()
})
await step('both views say that the API server is lost, and keep what they know', async () => {
  await request('cut')
  await request('change')
  for (const page of [table, job]) await lost(page).waitFor()
  await table.getByRole('row').filter({ hasText: 'pong' }).getByText('Starting').waitFor()
  await job.locator('.headline').getByText('Starting').waitFor()
  await picture(job, 'web-lost')
})
await step('both views are accessible while they show what they know', async () => {
  for (const [name, page] of [['jobs', table], ['job', job]]) {
    await both(page, async (mode) => {
      await lost(page).waitFor()
      await picture(page, `web-lost-${name}-${mode}`)
      await isAccessible(page)
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name}, ${mode}: it is wider than the screen`)
    })
  }
})
await step('both views continue when it is back, with what changed meanwhile', async () => {
  await request('restore')
  await table.getByRole('row').filter({ hasText: 'pong' }).getByText('Running').waitFor()
  await job.locator('.headline').getByText('Running').waitFor()
  for (const page of [table, job]) await lost(page).waitFor({ state: 'detached' })
})
await step('a change is on the screen soon', async () => {
  await request('change-again')
  const began = Date.now()
  for (const page of [table, job]) await page.getByText('Restarting').first().waitFor()
  return `${Date.now() - began} ms after the API server has it`
})
await end()
