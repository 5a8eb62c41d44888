// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// arrivals sends the objects of the first list while the API server still streams it.
type arrivals struct {
	send  Handle
	mutex sync.Mutex
	over  bool
	// sent are the objects that may have to be taken back.
	sent map[string]client.Object
}

// arrive sends an object of the first list.
func (a *arrivals) arrive(object client.Object) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.over {
		return
	}
	a.sent[cache.MetaObjectToName(object).String()] = object
	a.send(Change{Object: object})
}

// pass lets the events of a watch pass. After the bookmark that ends the first list, the informer sends each change in its order.
func (a *arrivals) pass(event watch.Event) (watch.Event, bool) {
	if event.Type == watch.Bookmark {
		if mark, err := meta.Accessor(event.Object); err == nil && mark.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			a.end()
		}
	}
	return event, true
}

// end ends the first list. One that is no stream has all its objects at once.
func (a *arrivals) end() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.over = true
}

// withdraw takes back what was deleted before the list was complete.
func (a *arrivals) withdraw(complete cache.Store) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for key, object := range a.sent {
		if _, exists, err := complete.GetByKey(key); err == nil && !exists {
			a.send(Change{Object: object, Gone: true})
		}
	}
	a.over, a.sent = true, nil
}
