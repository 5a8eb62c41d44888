// Takes pictures of the views of a cluster that teams use, on a screen and on a phone, in both colour schemes: sheet.mjs URL CONTROL-URL
import assert from 'node:assert/strict'
import { both, end, go, open, picture, step } from './browser.mjs'

const [address, control] = process.argv.slice(2)
const page = await open(address, { viewport: { width: 1440, height: 900 } })
const reports = 30

// The curves need time to pass.
await step('jobs report', async () => {
  await page.getByRole('link', { name: 'breakout-ppo', exact: true }).waitFor()
  for (let i = 0; i < reports; i++) {
    assert.ok((await fetch(control)).ok)
    await page.waitForTimeout(400)
  }
})

const broken = `apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata:
  name: breakout-ppo-2
spec:
  elastic: {task: learner, minReplicas: 2, maxReplicas: 1}
  tasks:
  - type: learner
    replicas: -4
    template:
      spec:
        containers:
        - name: di-container
          image: example.com/train:1.4
          resources:
            limits: {nvidia.com/gpu: 1}
`
/** cut returns the texts of elements that do not show all of them. It runs in the page. */
const cut = (all) => all.filter((one) => one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight).map((one) => one.textContent)
/** slides returns the names of boxes that scroll sideways. It runs in the page. */
const slides = (all) => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)
const views = [
  { name: 'jobs', hash: '#/jobs', seen: 'breakout-ppo', whole: '.c-why .two' },
  { name: 'job', hash: '#/jobs/games/breakout-ppo', seen: 'Conditions' },
  { name: 'timeline', hash: '#/jobs/games/breakout-ppo/timeline', seen: 'What happened' },
  { name: 'failed', hash: '#/jobs/games/qbert-dqn', seen: 'Conditions' },
  { name: 'cluster', hash: '#/cluster', seen: 'a100-1', whole: '.waiting p' },
  { name: 'new', hash: '#/new', seen: 'YAML of the job', open: () => page.getByLabel('YAML of the job').fill(broken), then: '.findings li' },
]
for (const { name, hash, seen, open: prepare = async () => {}, then = 'main', whole } of views) {
  await step(`the sheet has ${name}`, async () => {
    await go(page, hash, seen)
    await prepare()
    await page.locator(then).first().waitFor()
    await both(page, async (mode) => {
      // Charts are drawn again for another width.
      await page.waitForFunction(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(true)))))
      await picture(page, `sheet-${name}-${mode}`)
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${mode}: it is wider than the screen`)
      if (mode.startsWith('phone')) assert.deepEqual(await page.locator('.wide').evaluateAll(slides), [], `${mode}: it scrolls sideways`)
      if (whole) assert.deepEqual(await page.locator(whole).evaluateAll(cut), [], `${mode}: it is cut`)
    })
  })
}
await end()
