// The views other than the list of jobs. They are a file of their own, so that the list does not wait for them.
import { ClusterView } from './cluster'
import { ComparisonView } from './comparison'
import { CreateView } from './create'
import { HistoryView } from './history'
import { JobView } from './job'
import { RecordedView } from './recordedjob'
import type { Route } from './route'
import { SumsView } from './sums'

/** View is what a route shows, unless it is the list of jobs. */
export function View({ route }: { route: Route }) {
  switch (route.view) {
    case 'job':
      return <JobView key={`${route.namespace}/${route.name}`} route={route} />
    case 'history':
      return <HistoryView query={route.query} />
    case 'recorded':
      return <RecordedView key={location.hash} route={route} />
    case 'comparison':
      return <ComparisonView query={route.query} />
    case 'sums':
      return <SumsView query={route.query} />
    case 'cluster':
      return <ClusterView query={route.query} />
    case 'create':
      return <CreateView key={location.hash} query={route.query} />
    default:
      return null
  }
}
