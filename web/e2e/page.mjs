// Uses the page of a running kubectl di ui in Chromium: page.mjs URL VIEWER-URL NAMESPACE JOBS
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'

const [address, viewer, namespace, jobs] = process.argv.slice(2)
const pictures = process.env.PICTURES
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const args = ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync']
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args })
const failures = []

async function step(name, run) {
  const began = Date.now()
  try {
    await run()
    console.log(`ok: ${name} (${Date.now() - began} ms)`)
  } catch (error) {
    failures.push(name)
    console.log(`FAILED: ${name}: ${error.stack}`)
  }
}

async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options })
  const page = await context.newPage()
  page.setDefaultTimeout(20_000)
  page.on('console', (message) => /Content Security Policy/.test(message.text()) && failures.push(message.text()))
  page.on('pageerror', (error) => failures.push(String(error)))
  await page.goto(url)
  return page
}

const go = async (page, hash, seen) => {
  await page.evaluate((h) => (location.hash = h), hash)
  await page.getByText(seen).first().waitFor()
}

async function isAccessible(page) {
  // The page's policy allows no script but its own; this evaluates as a debugger does.
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => window.axe.run())
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).slice(0, 3).join(' ')}`), [])
}

async function picture(page, name) {
  if (!pictures) return
  mkdirSync(pictures, { recursive: true })
  await page.screenshot({ path: `${pictures}/${name}.png` })
}

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
  assert.equal(await page.locator('tr[data-row]').count(), 1)
})
await step('keys alone open a job', async () => {
  await page.locator('.scroll').focus()
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'pong', exact: true }).waitFor()
  await page.getByText('cannot pull image').first().waitFor()
  await picture(page, 'web-job')
})
await step('a dialog shows what would happen, and nothing happens', async () => {
  await page.getByRole('button', { name: 'Suspend' }).click()
  await page.locator('dialog li').first().waitFor()
  await picture(page, 'web-dialog')
  await page.keyboard.press('Escape')
  assert.equal(await page.locator('dialog').count(), 0)
})

const views = [
  ['#/jobs', /[0-9] jobs/],
  [`#/jobs/${namespace}/breakout`, 'Conditions'],
  [`#/jobs/${namespace}/breakout/timeline`, 'What happened'],
  [`#/jobs/${namespace}/breakout/logs`, 'Follow'],
  [`#/jobs/${namespace}/breakout/manifest`, 'apiVersion'],
  ['#/cluster', 'Waiting jobs'],
]
for (const scheme of ['light', 'dark']) {
  await page.emulateMedia({ colorScheme: scheme })
  for (const [hash, seen] of views) {
    await step(`${hash.replace(namespace, 'ns')} is accessible in ${scheme}`, async () => {
      await go(page, hash, seen)
      await picture(page, `web-${hash.split('/').slice(1).filter((p) => p !== namespace).join('-')}-${scheme}`)
      await isAccessible(page)
    })
  }
}
await step('the page speaks Chinese', async () => {
  await page.getByLabel('Language').selectOption('zh')
  await page.getByRole('heading', { name: '集群' }).waitFor()
  assert.equal(await page.evaluate(() => document.documentElement.lang), 'zh-CN')
  await picture(page, 'web-cluster-zh')
})
await step('the whole page is smaller than 200 kB', async () => {
  const sizes = await page.evaluate(async () => {
    const { gzip } = { gzip: async (r) => (await new Response((await fetch(r)).body.pipeThrough(new CompressionStream('gzip'))).arrayBuffer()).byteLength }
    return Promise.all(['./', './assets/app.js', './assets/index.css', './icon.svg'].map(gzip))
  })
  const total = sizes.reduce((a, b) => a + b)
  console.log(`the page has ${total} bytes compressed`)
  assert.ok(total < 200_000)
})
await step('the job fits a phone', async () => {
  await page.setViewportSize({ width: 390, height: 800 })
  for (const [hash, seen] of [['#/jobs', /共 .* 个作业/], [`#/jobs/${namespace}/breakout`, '状况'], ['#/cluster', '节点及其 GPU 占用']]) {
    await go(page, hash, seen)
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${hash} is wider than the screen`)
  }
  await picture(page, 'web-phone')
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
await step('a viewer sees why he may not suspend', async () => {
  const reader = await open(viewer)
  await go(reader, `#/jobs/${namespace}/pong`, 'Conditions')
  const button = reader.getByRole('button', { name: 'Suspend' })
  assert.equal(await button.getAttribute('aria-disabled'), 'true')
  await button.focus()
  await reader.getByText(/^Not possible: .+/).first().waitFor()
  await picture(reader, 'web-viewer')
})
await browser.close()
if (failures.length) {
  console.error(`failed: ${failures.join('; ')}`)
  process.exit(1)
}
