// Answers a newcomer's questions, each in two clicks from the first view: questions.mjs URL NAMESPACE
import assert from 'node:assert/strict'
import { end, isInView, open, picture, step } from './browser.mjs'

const [address, namespace] = process.argv.slice(2)
const page = await open(address)
const most = 2

/** question counts the clicks until the answer is on the screen. */
async function question(text, answer) {
  await step(text, async () => {
    await page.goto('about:blank')
    await page.goto(`${new URL(address).origin}/`)
    let clicks = 0
    const click = async (locator) => {
      clicks++
      await locator.click()
    }
    await answer(click)
    assert.ok(clicks <= most, `the answer takes ${clicks} clicks`)
    await picture(page, `web-${text.toLowerCase().replace(/\W+/g, '-')}`)
    return `${clicks} clicks`
  })
}
const job = (name) => page.getByRole('link', { name, exact: true })
const tab = (name) => page.getByRole('link', { name, exact: true })

await question('Why does this job not run', async (click) => {
  await click(job('waiting'))
  const why = page.getByRole('region', { name: 'Why' })
  await isInView(why.getByText('needs 4 GPUs, and 2 of 8 are free'))
  await isInView(why.getByText('Other jobs end or shrink, or an administrator adds nodes. GPUs that the job requests: 4.'))
})
await question('Which collector failed last and why', async (click) => {
  await click(job('breakout'))
  const failure = page.getByRole('region', { name: 'Last failure' })
  await isInView(failure.locator('.first b').getByText(/^Pod breakout-collector-2/))
  await isInView(failure.locator('.first b').getByText('exit code 1'))
  await isInView(failure.locator('b').getByText('ValueError: the shapes (4,) and (5,) differ'))
  await click(failure.getByRole('link'))
  await page.waitForURL(/logs\?replica=collector-2&find=ValueError/)
})
await question('Did growing help', async (click) => {
  await click(job('pong'))
  await click(tab('Timeline'))
  await isInView(page.getByText('throughput: 1.75 times as much with 4 replicas as with 2'))
})
await question('Who holds the GPUs', async (click) => {
  await click(tab('Cluster'))
  await isInView(page.getByRole('img', { name: 'GPUs: 6 of 8 requested', exact: true }))
  await isInView(page.getByRole('region', { name: 'Who holds what' }).getByRole('link', { name: `${namespace}/pong` }))
})
await question('Which node does this replica run on and what else is there', async (click) => {
  await click(job('pong'))
  await click(page.getByRole('row').filter({ hasText: 'learner-10' }).getByRole('link', { name: 'node', exact: true }))
  const row = page.locator('.nodes tr[aria-current=true]')
  await isInView(row.locator('th'))
  for (const name of ['pong', 'walker']) await isInView(row.getByRole('link', { name: `${namespace}/${name}`, exact: true }))
})
await question('Is it learning', async (click) => {
  await click(job('pong'))
  await isInView(page.getByText('reward rises.'))
})
await question('What changed at 14:05', async (click) => {
  await click(job('breakout'))
  await click(tab('Timeline'))
  await page.getByLabel('Go to time').fill('14:05')
  await isInView(page.locator('[aria-current=true]').getByText('replica collector-1 restarts'))
})
await question('Who waits for what I hold', async (click) => {
  await click(job('pong'))
  await isInView(page.locator('.stat').filter({ hasText: 'In line for GPUs' }).getByRole('link', { name: `${namespace}/waiting`, exact: true }))
  const line = page.getByRole('region', { name: 'In line for GPUs, while this job holds 8' })
  await line.getByRole('listitem').filter({ hasText: `${namespace}/waiting` }).getByText('needs 4 GPUs, and 2 of 8 are free').waitFor()
})
await question('What did this cost', async (click) => {
  await click(job('pong'))
  await isInView(page.locator('.stat').filter({ hasText: 'Cost' }).getByText(/^GPU hours · price 1[56]/))
  const cost = page.getByRole('region', { name: 'Cost' })
  await cost.getByText('What the pods that exist now (3) requested for as long as they ran.').waitFor()
  await cost.locator('.stat').filter({ hasText: 'Price' }).getByText(/^1[56]/).waitFor()
})
await end()
