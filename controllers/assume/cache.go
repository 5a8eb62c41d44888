// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package assume implements the assume cache of a controller: objects that the controller wrote and its
// informers may not have delivered yet. A controller that reads both never creates an object twice, and
// never decides on a version that it has replaced.
package assume

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TTL bounds how long a written object is assumed to exist without a confirming watch event. Only an
// object that was deleted while its watch was down reaches the TTL.
const TTL = 30 * time.Second

// Cache contains the assumed objects by their owner. All objects of an owner are in its namespace. The
// zero value is an empty cache. A new process starts with an empty cache, and learns from the API server
// that an object exists.
type Cache struct {
	mutex  sync.Mutex
	owners map[types.NamespacedName]Objects
}

// Objects are the assumed objects of one owner, by type and name.
type Objects map[string]assumed

// assumed is an object as the API server returned it, with the time of the answer.
type assumed struct {
	object client.Object
	since  time.Time
}

// keyOf identifies an object among those of its owner.
func keyOf(object client.Object) string {
	return fmt.Sprintf("%T %s", object, object.GetName())
}

// Assume adds an object as the API server returned it.
func (c *Cache) Assume(owner types.NamespacedName, object client.Object, now time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.owners == nil {
		c.owners = map[types.NamespacedName]Objects{}
	}
	if c.owners[owner] == nil {
		c.owners[owner] = Objects{}
	}
	c.owners[owner][keyOf(object)] = assumed{object: object, since: now}
}

// Confirm drops an assumed object if a watch event delivered the same or a later version.
func (c *Cache) Confirm(owner types.NamespacedName, delivered client.Object) {
	c.drop(owner, delivered, func(object client.Object) bool { return !IsOlder(delivered, object) })
}

// ConfirmDeleted drops an assumed object that a watch event reports as deleted.
func (c *Cache) ConfirmDeleted(owner types.NamespacedName, deleted client.Object) {
	c.drop(owner, deleted, func(object client.Object) bool {
		return !IsOlder(deleted, object) || deleted.GetUID() == object.GetUID()
	})
}

// drop drops the assumed object with the type and name of another object, if may returns true.
func (c *Cache) drop(owner types.NamespacedName, like client.Object, may func(client.Object) bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	key := keyOf(like)
	if found, ok := c.owners[owner][key]; ok && may(found.object) {
		c.delete(owner, key)
	}
}

// delete deletes an object. It also deletes an owner without remaining objects. The caller holds the
// mutex.
func (c *Cache) delete(owner types.NamespacedName, key string) {
	delete(c.owners[owner], key)
	if len(c.owners[owner]) == 0 {
		delete(c.owners, owner)
	}
}

// Forget drops all objects of an owner.
func (c *Cache) Forget(owner types.NamespacedName) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.owners, owner)
}

// Has reports whether an owner has assumed objects.
func (c *Cache) Has(owner types.NamespacedName) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(c.owners[owner]) > 0
}

// List returns the assumed objects of an owner. Call it before reading the informers' caches: an object
// that a watch event confirms in between is then in both.
func (c *Cache) List(owner types.NamespacedName) Objects {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return maps.Clone(c.owners[owner])
}

// Missing returns the listed objects that the informers' caches do not have, or have in an older version.
// It drops the other objects, those that reached the TTL, and those that the owner no longer owns.
func (c *Cache) Missing(
	owner types.NamespacedName, listed Objects, cached []client.Object, now time.Time, isOwned func(client.Object) bool,
) []client.Object {
	if len(listed) == 0 {
		return nil
	}
	known := make(map[string]client.Object, len(cached))
	for _, object := range cached {
		known[keyOf(object)] = object
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var missing []client.Object
	for key, each := range listed {
		delivered := known[key]
		isCached := delivered != nil && !IsOlder(delivered, each.object)
		if isCached || now.Sub(each.since) > TTL || !isOwned(each.object) {
			c.delete(owner, key)
			continue
		}
		missing = append(missing, each.object)
	}
	return missing
}

// Latest returns a cached object, or the assumed version of the same object if that is newer.
func Latest[T client.Object](c *Cache, cached T) T {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	owner, key := client.ObjectKeyFromObject(cached), keyOf(cached)
	written, ok := c.owners[owner][key].object.(T)
	if ok && written.GetUID() == cached.GetUID() && IsOlder(cached, written) {
		return written
	}
	c.delete(owner, key)
	return cached
}

// IsOlder reports whether an object has an earlier resource version than another.
func IsOlder(object, other client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), other.GetResourceVersion())
	return err == nil && order < 0
}
