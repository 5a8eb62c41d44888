// The table of scale plans.
import type { Plan } from './api'
import { useApp, useNow } from './app'
import { age } from './format'

export function Plans({ plans }: { plans: Plan[] }) {
  const { t } = useApp()
  const now = useNow()
  return (
    <div class="wide" role="group" tabIndex={0} aria-label={t.plans}>
      <table class="plain stacked">
        <thead>
          <tr>
            {[t.state, t.name, t.change, t.origin, t.message, t.age].map((title) => (
              <th scope="col">{title}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {plans.map((plan) => (
            <tr key={`${plan.namespace}/${plan.name}`}>
              <td>{t.say(plan.phase)}</td>
              <td>{plan.name}</td>
              <td class="long" data-title={t.change}>{plan.change}</td>
              <td data-title={t.origin}>{t.say(plan.origin)}</td>
              <td class="long" data-title={t.message}>
                {[plan.reason, plan.message].filter(Boolean).join(' — ')}
              </td>
              <td class="num" data-title={t.age}>{age(plan.createdAt, now)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
