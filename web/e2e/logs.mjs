// Chooses replicas, and follows and searches their logs: logs.mjs URL CONTROL-URL NAMESPACE
import assert from 'node:assert/strict'
import { end, go, isAccessible, open, picture, step } from './browser.mjs'

const [address, control, namespace] = process.argv.slice(2)
const page = await open(address)
const lines = page.getByLabel('Log lines')
const button = page.getByRole('button', { name: /^Replicas:/ })
const box = (name) => page.getByRole('checkbox', { name })

/** write has each replica write a line. */
async function write(line) {
  assert.ok((await fetch(`${control}/${line}`)).ok, line)
}

/** from waits until lines with a text come from these replicas, and from no other. */
async function from(text, ...wanted) {
  const sources = lines.locator('.line').filter({ hasText: text }).locator('.from')
  const seen = async () => (await sources.allInnerTexts()).map((name) => name.trim()).sort().join(' ')
  for (const until = Date.now() + 20_000; (await seen()) !== wanted.join(' ') && Date.now() < until; ) await page.waitForTimeout(50)
  assert.equal(await seen(), wanted.join(' '))
}

await step('the logs of all replicas are shown first', async () => {
  await go(page, `#/jobs/${namespace}/cartpole/logs`, 'Follow')
  await button.filter({ hasText: 'All replicas' }).waitFor()
  await from('starts', 'collector-aaaaa', 'collector-bbbbb', 'collector-ccccc', 'coordinator')
})
await step('keys alone choose two replicas', async () => {
  await button.focus()
  await page.keyboard.press('Enter')
  await page.getByLabel('Find a replica').waitFor()
  await isAccessible(page)
  await page.keyboard.press('Tab')
  await page.keyboard.type('COLLECTOR')
  await box('coordinator').waitFor({ state: 'detached' })
  while (!(await box('collector-aaaaa').evaluate((e) => e === document.activeElement))) await page.keyboard.press('Tab')
  await page.keyboard.press('Space')
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('Space')
  assert.ok(await box('collector-ccccc').isChecked())
  await picture(page, 'web-log-choice')
  await isAccessible(page)
  await page.keyboard.press('Escape')
  await box('collector-ccccc').waitFor({ state: 'detached' })
  assert.ok(await button.evaluate((e) => e === document.activeElement), 'the focus returns to the button')
  await button.filter({ hasText: 'collector-aaaaa, collector-ccccc' }).waitFor()
  assert.match(page.url(), /logs\?replica=collector-aaaaa&replica=collector-ccccc$/)
})
await step('new lines come of the chosen replicas alone', async () => {
  await from('starts', 'collector-aaaaa', 'collector-ccccc')
  await write('round-1')
  await from('round-1', 'collector-aaaaa', 'collector-ccccc')
})
await step('a search keeps the choice, and a choice keeps the search', async () => {
  await page.getByLabel('Only lines with').fill('ROUND-')
  await page.keyboard.press('Enter')
  await lines.getByText('starts').first().waitFor({ state: 'detached' })
  await from('round-1', 'collector-aaaaa', 'collector-ccccc')
  await button.click()
  await box('collector-aaaaa').uncheck()
  await from('round-1', 'collector-ccccc')
  assert.equal(await lines.getByText('starts').count(), 0)
  await write('round-2')
  await from('round-2', 'collector-ccccc')
})
await step('all of a role are chosen at once', async () => {
  await page.getByRole('button', { name: 'collector 3' }).click()
  await button.filter({ hasText: '3 chosen' }).waitFor()
  await from('round-2', 'collector-aaaaa', 'collector-bbbbb', 'collector-ccccc')
  await lines.click()
  await box('collector-aaaaa').waitFor({ state: 'detached' })
})
await step('the link has the choice', async () => {
  await page.reload()
  await button.filter({ hasText: '3 chosen' }).waitFor()
  await from('starts', 'collector-aaaaa', 'collector-bbbbb', 'collector-ccccc')
  await button.click()
  await page.getByRole('group', { name: 'Choose replicas' }).getByRole('button', { name: 'All replicas' }).click()
  assert.match(page.url(), /logs$/)
  await page.keyboard.press('Escape')
  await from('starts', 'collector-aaaaa', 'collector-bbbbb', 'collector-ccccc', 'coordinator')
})
await step('the choice fits a phone, in Chinese', async () => {
  await page.getByLabel('Language').selectOption('zh')
  await page.setViewportSize({ width: 390, height: 800 })
  await page.getByRole('button', { name: /^副本:/ }).click()
  await page.getByLabel('查找副本').waitFor()
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the choice is wider than the screen')
  await picture(page, 'web-log-choice-phone')
  await isAccessible(page)
})
await end()
