// Looks at a job that trains, resizes it, and understands one that fails: training.mjs URL NAMESPACE JOB FAILING-JOB
import assert from 'node:assert/strict'
import { end, go, isInView, open, picture, step } from './browser.mjs'

const [address, namespace, training, failing] = process.argv.slice(2)
const page = await open(address)
page.setDefaultTimeout(90_000)

await step('the table shows a job that trains, with its curve', async () => {
  const row = page.getByRole('row').filter({ has: page.getByRole('link', { name: training, exact: true }) })
  await row.getByText('Running').waitFor()
  await row.getByText('5/5').waitFor()
  await row.locator('.c-curve svg').waitFor()
  await picture(page, 'web-training-jobs')
})
await step('the job shows its replicas', async () => {
  await page.getByRole('link', { name: training, exact: true }).click()
  for (const name of ['learner-0', 'evaluator-0', 'collector-2']) {
    await page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) }).getByText('Running').waitFor()
  }
  await picture(page, 'web-training-job')
})
await step('the timeline shows what the job reports', async () => {
  await page.getByRole('link', { name: 'Timeline' }).click()
  await page.getByRole('figure', { name: /^reward/ }).waitFor()
  // A curve has two points at least.
  await page.getByRole('figure', { name: /^reward.*: last .+, from (.+) to (?!\1$)/ }).waitFor()
  await picture(page, 'web-training-timeline')
})
await step('the logs of all replicas follow, and are searched', async () => {
  await page.getByRole('link', { name: 'Logs' }).click()
  const lines = page.getByLabel('Log lines')
  await lines.getByText('learner-0').first().waitFor()
  await lines.getByText('collector-1').first().waitFor()
  await picture(page, 'web-training-logs')
  await page.getByLabel('Search in the logs').fill('eval=')
  await lines.locator('.current mark').getByText('eval=').first().waitFor()
})
await step('the job is resized, and trains on', async () => {
  await go(page, `#/jobs/${namespace}/${training}`, 'Conditions')
  await page.getByRole('button', { name: 'Resize', exact: true }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Desired replicas').fill('4')
  await dialog.getByText('The replicas of task collector change from 3 to 4.').waitFor()
  await picture(page, 'web-training-resize')
  await dialog.getByRole('button', { name: 'Resize to 4' }).click()
  await dialog.waitFor({ state: 'detached' })
  await page.locator('.stats').getByText('6/6', { exact: true }).waitFor()
  await page.getByRole('row').filter({ hasText: 'collector-3' }).getByText('Running').waitFor()
  await page.getByRole('link', { name: 'Timeline' }).click()
  await page.locator('.moments').getByText('Resize', { exact: true }).first().waitFor()
})
await step('a job that fails is understood', async () => {
  await go(page, `#/jobs/${namespace}/${failing}`, 'Conditions')
  await page.getByText('Failed', { exact: true }).first().waitFor()
  const failure = page.getByRole('region', { name: 'Last failure' })
  await isInView(failure.locator('.first b').getByText(/exit code [12]/))
  await picture(page, 'web-training-failed')
  await failure.getByRole('link').click()
  await page.getByLabel('Log lines').getByText('no-such-flag').first().waitFor()
  assert.match(page.url(), /logs\?replica=/)
})
await end()
