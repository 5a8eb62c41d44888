// Creates, clones and undoes, and changes several jobs at once: together.mjs URL NAMESPACE
import assert from 'node:assert/strict'
import { act, both, end, go, isAccessible, open, picture, step } from './browser.mjs'

const [address, namespace] = process.argv.slice(2)
const page = await open(address, { viewport: { width: 1440, height: 900 } })
const deleted = await page.context().newPage()
const dialog = page.getByRole('dialog')
const status = page.getByRole('status')
const pasted = `apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata:
  name: pasted
spec:
  tasks:
  - type: learner
    replicas: -1
    template:
      spec:
        containers:
        - {name: di-container, image: di}
`

async function isFine(name, at = page) {
  await both(at, async (mode) => {
    await picture(at, `web-${name}-${mode}`)
    await isAccessible(at)
    assert.ok(await at.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${mode}: it is wider than the screen`)
  })
}

/** canUndo looks at what says that something was done, in a colour scheme, and undoes it. There is not the time for all of them. */
async function canUndo(colorScheme) {
  const undo = status.getByRole('button', { name: 'Undo' })
  await undo.waitFor()
  await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
  await picture(page, `web-undo-${colorScheme}`)
  await isAccessible(page)
  await undo.click()
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: null })
  await status.getByText('Done: it is as before.').waitFor()
}

/** saysWhyNot checks what the button that creates the job is described by. */
async function saysWhyNot(why) {
  const button = page.getByRole('button', { name: /^Create / })
  assert.equal(await button.evaluate((one) => document.getElementById(one.getAttribute('aria-describedby')).textContent), why)
  assert.equal(await button.isDisabled(), why !== '')
}

await step('a job that is pasted is tried while it is written, and a finding leads to its line', async () => {
  await page.getByRole('link', { name: 'New job' }).click()
  const field = page.getByLabel('YAML of the job')
  await saysWhyNot('Paste the YAML of a DIJob first.')
  await field.fill(pasted)
  const says = page.getByRole('region', { name: 'What the API server says' })
  await says.getByText('spec.tasks[0].replicas', { exact: true }).waitFor()
  await saysWhyNot('Correct what the API server refuses first.')
  await isFine('create-refused')
  await says.getByRole('button', { name: 'Line 8' }).click()
  assert.equal(await field.evaluate((box) => box.value.slice(box.selectionStart, box.selectionEnd)), '    replicas: -1')
})
await step('what was typed survives another view and a reload', async () => {
  await go(page, '#/cluster', /^Nodes$/)
  await page.reload()
  await go(page, '#/new', 'YAML of the job')
  assert.equal(await page.getByLabel('YAML of the job').inputValue(), pasted)
})
await step('the job is created once the API server takes it', async () => {
  await page.getByLabel('YAML of the job').fill(pasted.replace('replicas: -1', 'replicas: 1'))
  await page.getByText('The API server takes this job.').waitFor()
  await saysWhyNot('')
  await isFine('create')
  await page.getByRole('button', { name: 'Create pasted' }).click()
  await page.getByRole('heading', { name: 'pasted', exact: true }).waitFor()
  await go(page, '#/new', 'Paste the YAML of a DIJob first.')
})
await step('a job is cloned without what the server wrote', async () => {
  await go(page, `#/jobs/${namespace}/sweep-0`, 'Conditions')
  await page.getByRole('link', { name: 'Clone' }).click()
  await page.getByText('The API server takes this job.').waitFor()
  const text = await page.getByLabel('YAML of the job').inputValue()
  assert.match(text, /name: sweep-0-copy/)
  assert.doesNotMatch(text, /uid:|status:|resourceVersion:/)
  await page.getByRole('button', { name: 'Create sweep-0-copy' }).click()
  await page.getByRole('heading', { name: 'sweep-0-copy', exact: true }).waitFor()
})
await step('a resize and a suspension are undone from what says that they are done', async () => {
  await go(page, `#/jobs/${namespace}/sweep-1`, 'Conditions')
  await act(page, 'Resize', { effects: ['from 3 to 5'], confirm: 'Resize to 5', choose: (open) => open.getByLabel('Desired replicas').fill('5') })
  await canUndo('light')
  await go(page, `#/jobs/${namespace}/sweep-1/manifest`, 'replicas: 3')
  await go(page, `#/jobs/${namespace}/sweep-1`, 'Conditions')
  await act(page, 'Suspend', { effects: ["The job's pods are deleted"], confirm: 'Suspend sweep-1' })
  await canUndo('dark')
})
await step('several jobs are suspended at once, and resumed by one click', async () => {
  await go(page, '#/jobs?search=sweep', 'sweep-3')
  for (const name of ['sweep-1', 'sweep-2', 'sweep-3']) await page.getByLabel(`Choose ${name}`, { exact: true }).check()
  await page.getByText('3 jobs are chosen').waitFor()
  await isFine('chosen')
  await page.getByRole('group', { name: '3 jobs are chosen' }).getByRole('button', { name: 'Suspend' }).click()
  await dialog.getByText('The cluster allows it for all of them.').waitFor()
  await dialog.getByRole('button', { name: 'Suspend 3 jobs' }).click()
  await status.getByText('Done: Suspend 3 jobs.').waitFor()
  await page.getByText('3 jobs are chosen').waitFor({ state: 'detached' })
  await page.getByLabel('Choose sweep-1', { exact: true }).check()
  await page.getByRole('group', { name: '1 job is chosen' }).getByRole('button', { name: 'Resume' }).click()
  await dialog.getByRole('button', { name: 'Resume 1 job' }).click()
  await status.getByText('Done: Resume 1 job.').waitFor()
})
await step('jobs that run are deleted only after their number is typed', async () => {
  await deleted.goto(`${new URL(address).origin}/#/jobs/${namespace}/sweep-0`)
  await deleted.getByRole('heading', { name: 'Conditions' }).waitFor()
  await go(page, '#/jobs', 'done')
  await page.getByLabel('Choose done', { exact: true }).check()
  await page.getByLabel('Choose sweep-0', { exact: true }).check()
  await page.getByRole('group', { name: '2 jobs are chosen' }).getByRole('button', { name: 'Delete' }).click()
  await dialog.getByText('The cluster allows it for all of them.').waitFor()
  await dialog.getByText('Type the number first.').waitFor()
  const button = dialog.getByRole('button', { name: 'Delete 2 jobs' })
  assert.ok(await button.isDisabled())
  await isFine('delete-several')
  await dialog.getByLabel(/^Of these jobs, 1 has not finished/).fill('1')
  await button.click()
  await status.getByText('Done: Delete 2 jobs.').waitFor()
  await page.getByRole('link', { name: 'done', exact: true }).waitFor({ state: 'detached' })
})
await step('who looks at a job that is deleted sees its last state', async () => {
  await deleted.getByText(/^This job was deleted\. Showing its state of /).waitFor()
  await deleted.getByRole('heading', { name: 'Conditions' }).waitFor()
  assert.equal(await deleted.locator('.actions button').count(), 0, 'nothing can be done with it')
  await isFine('deleted', deleted)
  await deleted.close()
})
await step('a filter has a name, which a reload keeps', async () => {
  await go(page, '#/jobs?search=sweep', 'sweep-3')
  await page.getByRole('button', { name: 'Save filter' }).click()
  await page.getByLabel('Name of the filter').fill('my sweep')
  await page.keyboard.press('Enter')
  await page.evaluate(() => (location.hash = '#/jobs'))
  await page.reload()
  await page.getByRole('link', { name: 'my sweep' }).click()
  await page.waitForURL(/search=sweep/)
  await page.getByRole('link', { name: 'pasted', exact: true }).waitFor({ state: 'detached' })
})
await step('Ctrl-K finds jobs, views and filters', async () => {
  await page.keyboard.press('Control+k')
  const field = page.getByRole('combobox', { name: 'Find a job, a view or a command' })
  await field.fill('past')
  await page.getByRole('option', { name: `job ${namespace}/pasted` }).waitFor()
  await isFine('palette')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'pasted', exact: true }).waitFor()
  await page.keyboard.press('Control+k')
  await field.fill('my sweep')
  await page.getByRole('option', { name: 'Filter my sweep' }).click()
  await page.waitForURL(/search=sweep/)
  await page.getByRole('button', { name: 'Forget filter my sweep' }).click()
  await page.getByRole('link', { name: 'my sweep' }).waitFor({ state: 'detached' })
})
await end()
