// Changes a coordinator-led job by the buttons of its page: led.mjs URL NAMESPACE JOB NEWBORN-JOB
import assert from 'node:assert/strict'
import { act, end, go, isNotOffered, open, step } from './browser.mjs'

const [address, namespace, job, newborn] = process.argv.slice(2)
const page = await open(address)
const dialog = page.getByRole('dialog')

/** replicas returns the names that the dialog offers to restart. */
async function replicas() {
  await dialog.getByLabel('Replica').waitFor()
  return dialog.getByLabel('Replica').locator('option').allInnerTexts()
}

/** part returns the row of a replica in the table. The table of plans has names of pods, too. */
const parts = page.getByRole('region', { name: 'Replicas' }).getByRole('row')
const part = (name) => parts.filter({ has: page.getByRole('link', { name, exact: true }) })

/** rowsOf waits for a number of replicas of a role. A replaced one is shown until its pod is gone. */
async function rowsOf(role, count) {
  const rows = parts.filter({ hasText: `${role}-` })
  await rows.nth(count - 1).waitFor()
  await rows.nth(count).waitFor({ state: 'detached' })
}

/** toCollectors fills the form with a number of collectors. */
const toCollectors = (count) => async (form) => {
  await form.getByLabel('Task').selectOption('collector')
  await form.getByLabel('Desired replicas').fill(String(count))
}

await step('a job whose coordinator has requested nothing is not resized or restarted', async () => {
  await go(page, `#/jobs/${namespace}/${newborn}`, 'Conditions')
  await part('coordinator').waitFor()
  await isNotOffered(page, 'Resize', 'Resize: No task has replicas yet: the coordinator requests the first one of each task.')
  await isNotOffered(page, 'Restart replica', 'Restart replica: No collector or learner has a pod, and a coordinator cannot be restarted alone.')
})
await step('the job shows its members', async () => {
  await go(page, `#/jobs/${namespace}/${job}`, 'Conditions')
  await page.getByRole('heading', { name: job, exact: true }).waitFor()
  await part('coordinator').waitFor()
  await rowsOf('collector', 2)
  await rowsOf('ddp-learner', 1)
})
await step('collectors are added', async () => {
  const effects = ['The replicas of task collector change from 2 to 4.', 'Replicas that are added: 2, with GPUs: 0.', 'A ScalePlan asks the operator for it.']
  await act(page, 'Resize', { effects, confirm: 'Resize to 4', choose: toCollectors(4), name: 'led-resize' })
  await rowsOf('collector', 4)
  await page.getByRole('region', { name: 'Plans' }).getByText('resized by kubectl di ui').waitFor()
})
await step('learners of several GPUs are counted as wholes', async () => {
  await page.getByRole('button', { name: 'Resize', exact: true }).click()
  await dialog.getByLabel('Task').selectOption('learner')
  await dialog.getByLabel('Desired replicas').fill('2')
  await dialog.getByText('The replicas of task learner change from 1 to 2.').waitFor()
  await dialog.getByText('Replicas that are added: 1, with GPUs: 2.').waitFor()
  await page.keyboard.press('Escape')
})
await step('a size that the operator would refuse is refused in words', async () => {
  await page.getByRole('button', { name: 'Resize', exact: true }).click()
  await toCollectors(99999)(dialog)
  await dialog.getByText(/must be at most \d+/).waitFor()
  assert.ok(await dialog.getByRole('button', { name: 'Resize to 99999' }).isDisabled())
  await page.keyboard.press('Escape')
})
await step('collectors are removed', async () => {
  const effects = ['The replicas of task collector change from 4 to 2.', 'The newest replicas are removed, and run on for the drain time.']
  await act(page, 'Resize', { effects, confirm: 'Resize to 2', choose: toCollectors(2), name: 'led-shrink' })
  await rowsOf('collector', 2)
})
await step('a replica is replaced', async () => {
  let chosen = ''
  const choose = async (form) => {
    const names = await replicas()
    assert.deepEqual(names.map((name) => name.replace(/-[^-]+$/, '')).sort(), ['aggregator', 'collector', 'collector'])
    chosen = names.find((name) => name.startsWith('collector-'))
    await form.getByLabel('Replica').selectOption(chosen)
    await form.getByText(`A ScalePlan asks the operator to replace ${chosen} by another pod.`).waitFor()
  }
  await act(page, 'Restart replica', { effects: ['The coordinator loses its connection to the replica.'], choose, confirm: /^Restart collector-/, name: 'led-restart' })
  await part(chosen).waitFor({ state: 'detached' })
  await rowsOf('collector', 2)
})
await step('a learner of several GPUs is replaced as a whole', async () => {
  let aggregator = ''
  const choose = async (form) => {
    aggregator = (await replicas()).find((name) => name.startsWith('aggregator-'))
    await form.getByLabel('Replica').selectOption(aggregator)
  }
  await act(page, 'Restart replica', { effects: ['A learner of several GPUs is replaced as a whole.'], choose, confirm: /^Restart aggregator-/, name: 'led-restart-unit' })
  await part(aggregator).waitFor({ state: 'detached' })
  await rowsOf('ddp-learner', 1)
})
await step('the job is suspended, and then not resized', async () => {
  const effects = ['GPUs that become free: 2.', 'State that the job keeps only in its pods is lost', 'Resuming creates the coordinator again, without its replicas. It requests them.']
  await act(page, 'Suspend', { effects, confirm: `Suspend ${job}`, name: 'led-suspend' })
  await part('coordinator').waitFor({ state: 'detached' })
  for (const action of ['Resize', 'Restart replica']) await isNotOffered(page, action, 'Resize, Restart replica: The job is suspended.')
})
await step('the job is resumed', async () => {
  await act(page, 'Resume', { effects: ['The coordinator is created again, without the replicas that it had.'], confirm: `Resume ${job}`, name: 'led-resume' })
  await part('coordinator').waitFor()
})
await end()
