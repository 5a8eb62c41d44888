// Reads the history of jobs on a screen and on a phone: history.mjs URL URL-WITHOUT-HISTORY NAMESPACE
import assert from 'node:assert/strict'
import { end, go, isAccessible, open, picture, step } from './browser.mjs'

const [address, without, namespace] = process.argv.slice(2)
const page = await open(address)
const other = await open(without)

async function isFine(at, name) {
  await picture(at, name)
  await isAccessible(at)
  assert.ok(await at.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'it is wider than the screen')
}

for (const [size, width, height] of [['screen', 1280, 800], ['phone', 390, 844]]) {
  for (const one of [page, other]) await one.setViewportSize({ width, height })
  const named = (name) => `web-history-${name}-${size}`
  await step(`the list has finished and deleted jobs, and pages: ${size}`, async () => {
    await page.evaluate(() => (location.hash = '#/jobs'))
    await page.getByRole('link', { name: 'History' }).click()
    await page.getByText('Deleted').first().waitFor()
    assert.equal(await page.locator('table.recorded tbody tr').count(), 100)
    await isFine(page, named('list'))
    await page.getByRole('link', { name: 'Older' }).click()
    await page.getByRole('link', { name: 'many-000', exact: true }).waitFor()
    assert.equal(await page.getByRole('link', { name: 'Older' }).count(), 0)
    await page.getByRole('link', { name: 'Newest' }).click()
    await page.getByRole('link', { name: 'Older' }).waitFor()
  })
  await step(`filters are in the link: ${size}`, async () => {
    await page.getByLabel('User', { exact: true }).fill('jane')
    await page.getByLabel('User', { exact: true }).press('Enter')
    await page.getByLabel('Phase').selectOption('Failed')
    await page.getByRole('link', { name: 'pong', exact: true }).waitFor()
    assert.match(page.url(), /#\/history\?user=jane&phase=Failed$/)
    assert.equal(await page.locator('table.recorded tbody tr').count(), 1)
    await page.getByText('a learner ran out of memory').waitFor()
    await page.getByLabel('Reason of the end').fill('nothing')
    await page.getByLabel('Reason of the end').press('Enter')
    await page.getByText('No job is recorded here.').waitFor()
  })
  await step(`a job shows what is recorded of it: ${size}`, async () => {
    await go(page, '#/history?text=out%20of%20memory', 'OOMKilled')
    await page.getByRole('link', { name: 'pong', exact: true }).click()
    await page.getByRole('figure', { name: /^reward: last 4, from 1 to 9/ }).waitFor()
    await page.getByText('from the start of the job on').waitFor()
    for (const text of ['kubectl-scale', 'cpu=1500m, memory=3Gi', 'node a is gone', 'pong-learner-1']) await page.getByRole('cell', { name: text }).first().waitFor()
    const tail = page.getByLabel(/learner-1, container di-container: exit code 137/)
    assert.equal(await tail.innerText(), 'RuntimeError: out of memory\n  at step 7\nKilled')
    assert.equal(await tail.locator('b').innerText(), 'RuntimeError: out of memory')
    await isFine(page, named('job'))
  })
  await step(`jobs are compared: ${size}`, async () => {
    await go(page, '#/history?user=jane', 'pong-2')
    await page.getByLabel('Compare pong', { exact: true }).check()
    await page.getByLabel('Compare pong-2', { exact: true }).check()
    await page.getByRole('link', { name: 'Compare 2 jobs' }).click()
    await page.getByRole('figure', { name: 'reward of 2 jobs' }).locator('canvas').waitFor()
    await page.getByText('spec.tasks[learner].replicas').waitFor()
    await page.getByText('used at most').waitFor()
    await page.getByRole('row', { name: /reward Highest 9 8/ }).waitFor()
    await isFine(page, named('compare'))
  })
  await step(`a living job has its curves from its start on: ${size}`, async () => {
    await go(page, `#/jobs/${namespace}/living/timeline`, 'from the start of the job on')
    await page.getByRole('figure', { name: /^reward: last 120, from 1 to 120/ }).waitFor()
    await isFine(page, named('living'))
  })
  await step(`without a history, the page says how to switch it on: ${size}`, async () => {
    await go(other, '#/cluster', 'Waiting jobs')
    assert.equal(await other.getByRole('link', { name: 'History', exact: true }).count(), 0)
    await go(other, `#/jobs/${namespace}/living/timeline`, 'began to observe the job')
    await other.locator('.source').getByText('history.enabled=true').waitFor()
    await isFine(other, named('off-curves'))
    await go(other, '#/history', 'history.enabled=true')
    await isFine(other, named('off'))
  })
}
await step('the history is in Chinese', async () => {
  await page.getByLabel('Language').selectOption('zh')
  await go(page, '#/history', '已删除')
  await go(page, '#/history?text=out%20of%20memory', 'OOMKilled')
  await page.getByRole('link', { name: 'pong', exact: true }).click()
  await page.getByRole('heading', { name: '尝试' }).waitFor()
  await isAccessible(page)
  await picture(page, 'web-history-job-zh')
})
await end()
