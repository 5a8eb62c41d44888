// Uses every view of a running kubectl di ui: page.mjs URL VIEWER-URL NAMESPACE JOBS
import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { end, go, isAccessible, open, picture, step } from './browser.mjs'

const [address, viewer, namespace, jobs] = process.argv.slice(2)
const page = await open(address)

await step('the table shows the jobs', async () => {
  await page.getByText(`${jobs} jobs`).waitFor()
  await page.getByRole('link', { name: /^many-/ }).first().waitFor()
  await picture(page, 'web-jobs')
})
await step('the last of all jobs is a scroll away', async () => {
  const began = Date.now()
  await page.locator('.scroll').evaluate((box) => (box.scrollTop = box.scrollHeight))
  await page.locator(`tr[data-row="${Number(jobs) - 1}"]`).waitFor()
  assert.ok(Date.now() - began < 5000, `the last row came after ${Date.now() - began} ms`)
  assert.ok((await page.locator('tbody tr').count()) < 80, 'only rows in view are drawn')
})
await step('a search, a phase and a link find a job', async () => {
  await page.getByRole('searchbox').fill('imagepull')
  await page.getByRole('link', { name: 'pong', exact: true }).waitFor()
  assert.match(page.url(), /search=imagepull/)
  await page.getByText(`1 of ${jobs} jobs`).waitFor()
  await page.locator('tr[data-row]').first().waitFor()
  await page.locator('tr[data-row]').nth(1).waitFor({ state: 'detached' })
})
await step('keys alone open a job', async () => {
  await page.locator('.scroll').focus()
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'pong', exact: true }).waitFor()
  await page.getByText('cannot pull image').first().waitFor()
  await picture(page, 'web-job')
})
await step('keys lead to views and rows, and are listed', async () => {
  await page.keyboard.press('g')
  await page.keyboard.press('j')
  await page.locator('tr[data-row]').nth(1).waitFor()
  await page.locator('.scroll').focus()
  for (const key of ['j', 'j', 'k']) await page.keyboard.press(key)
  assert.equal(await page.evaluate(() => document.activeElement.closest('tr')?.dataset.row), '0')
  await page.keyboard.press('?')
  await page.getByRole('dialog', { name: 'Keys' }).waitFor()
  await isAccessible(page)
  await page.keyboard.press('Escape')
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  await page.keyboard.press('/')
  await page.keyboard.type('imagepull')
  await page.getByText(`1 of ${jobs} jobs`).waitFor()
  await page.getByRole('link', { name: 'pong', exact: true }).click()
  await page.getByRole('heading', { name: 'pong', exact: true }).waitFor()
})
await step('the reason of a job is on a phone, too', async () => {
  const phone = await open(`${new URL(address).origin}/#/jobs?search=imagepull`, { viewport: { width: 390, height: 844 }, storageState: await page.context().storageState() })
  await phone.locator('.c-why').getByText('ImagePull').and(phone.locator(':visible')).waitFor()
  await phone.locator('.c-why .quiet:visible').first().waitFor()
  await picture(phone, 'web-jobs-phone')
  await phone.context().close()
})
await step('a dialog shows what would happen, and nothing happens', async () => {
  await page.getByRole('button', { name: 'Suspend' }).click()
  await page.locator('dialog li').first().waitFor()
  await picture(page, 'web-dialog')
  await page.keyboard.press('Escape')
  await page.locator('dialog').waitFor({ state: 'detached' })
})

await step('the page speaks Chinese', async () => {
  await go(page, '#/cluster', 'Waiting jobs')
  await page.getByLabel('Language').selectOption('zh')
  await page.getByRole('heading', { name: '集群' }).waitFor()
  assert.equal(await page.evaluate(() => document.documentElement.lang), 'zh-CN')
  await picture(page, 'web-cluster-zh')
})
await step('the whole page is smaller than 200 kB', async () => {
  const dist = fileURLToPath(new URL('../dist/', import.meta.url))
  const files = readdirSync(dist, { recursive: true, withFileTypes: true }).filter((file) => file.isFile())
  const paths = files.map((file) => relative(dist, join(file.parentPath, file.name)).replaceAll('\\', '/'))
  const loaded = await page.evaluate(() => performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname.slice(1)))
  const unknown = loaded.filter((path) => !path.startsWith('api/') && !paths.includes(path))
  assert.deepEqual(unknown, [], 'the page loads nothing else')
  assert.ok(loaded.includes('assets/views.js'), `the views are loaded: ${loaded.join()}`)
  const sizes = await page.evaluate(async (all) => {
    const gzip = async (path) => (await new Response((await fetch(path)).body.pipeThrough(new CompressionStream('gzip'))).arrayBuffer()).byteLength
    return Promise.all(all.map(gzip))
  }, paths)
  const total = sizes.reduce((a, b) => a + b, 0)
  console.log(`the page has ${total} bytes compressed: ${paths.map((path, i) => `${path} ${sizes[i]}`).join(', ')}`)
  assert.ok(total < 200_000)
})
await step('a lost connection is said, and mended', async () => {
  const other = await page.context().newPage()
  await other.goto(`${new URL(address).origin}/#/jobs`)
  await other.locator('tr[data-row]').first().waitFor()
  const lost = /连接已断开|Connection lost/
  await other.route('**/api/**', (route) => route.abort())
  await other.getByRole('searchbox').fill('pong')
  await other.getByText(lost).waitFor()
  await other.unroute('**/api/**')
  await other.getByText(lost).waitFor({ state: 'detached' })
  await other.getByRole('link', { name: 'pong', exact: true }).waitFor()
})
await step('a viewer sees why he may not suspend, and not read logs', async () => {
  const reader = await open(viewer)
  await go(reader, `#/jobs/${namespace}/pong`, 'Conditions')
  const button = reader.getByRole('button', { name: 'Suspend' })
  assert.equal(await button.getAttribute('aria-disabled'), 'true')
  await reader.getByText('You do not have the right.').waitFor()
  await picture(reader, 'web-viewer')
  await go(reader, `#/jobs/${namespace}/pong/logs`, 'Follow')
  await reader.getByRole('alert').getByText(/pods.*forbidden|may not|cannot list/).waitFor()
})
await end()
