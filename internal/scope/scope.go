// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scope restricts a program to the jobs of some namespaces: its caches watch nothing else, and
// objects of other namespaces do not exist for it. The zero value restricts nothing.
package scope

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// MaxNamespaces is the maximum number of watched namespaces. Each has watches of its own.
const MaxNamespaces = 256

// Namespaces are the namespaces whose jobs a program sees. The zero value is all.
type Namespaces struct {
	watched []string
	// configs is the namespace of the cluster's AggregatorConfig, which is seen as well.
	configs string
}

// New returns the given namespaces; all if none are given. The cluster's AggregatorConfig may be in another
// namespace.
func New(watched []string, config types.NamespacedName) (Namespaces, error) {
	if len(watched) > MaxNamespaces {
		return Namespaces{}, fmt.Errorf("%d namespaces: at most %d can be watched one by one; watch all", len(watched), MaxNamespaces)
	}
	var all []string
	for _, name := range watched {
		if faults := validation.IsDNS1123Label(name); len(faults) > 0 {
			return Namespaces{}, fmt.Errorf("%q is no name of a namespace: %w", name, errors.New(faults[0]))
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return Namespaces{watched: all, configs: config.Namespace}, nil
}

// IsAll reports whether all namespaces are seen.
func (n Namespaces) IsAll() bool { return len(n.watched) == 0 }

// Has reports whether the jobs of a namespace are seen.
func (n Namespaces) Has(namespace string) bool {
	return n.IsAll() || slices.Contains(n.watched, namespace)
}

// Names returns the namespaces; none for all.
func (n Namespaces) Names() []string { return slices.Clone(n.watched) }

// Cache restricts a cache to the namespaces.
func (n Namespaces) Cache(options cache.Options) cache.Options {
	if n.IsAll() {
		return options
	}
	options.DefaultNamespaces = configs(n.watched)
	if options.ByObject == nil {
		options.ByObject = map[client.Object]cache.ByObject{}
	}
	options.ByObject[&v2alpha1.AggregatorConfig{}] = cache.ByObject{Namespaces: configs(n.withConfigs())}
	return options
}

func configs(namespaces []string) map[string]cache.Config {
	all := make(map[string]cache.Config, len(namespaces))
	for _, name := range namespaces {
		all[name] = cache.Config{}
	}
	return all
}

// withConfigs returns the namespaces whose AggregatorConfigs are seen.
func (n Namespaces) withConfigs() []string {
	if n.configs == "" || slices.Contains(n.watched, n.configs) {
		return n.watched
	}
	return append(slices.Clone(n.watched), n.configs)
}

// Watches returns how many watches a cache opens for a resource.
func (n Namespaces) Watches(resource string) int {
	switch {
	case n.IsAll():
		return 1
	case resource == "aggregatorconfigs":
		return len(n.withConfigs())
	}
	return len(n.watched)
}

// sees reports whether an object or list of a namespace is seen. Objects without a namespace are.
func (n Namespaces) sees(namespace string, object any) bool {
	if namespace == "" || n.Has(namespace) {
		return true
	}
	switch object.(type) {
	case *v2alpha1.AggregatorConfig, *v2alpha1.AggregatorConfigList:
		return namespace == n.configs
	}
	return false
}

// Client returns a client for which objects of other namespaces do not exist.
func (n Namespaces) Client(unrestricted client.Client) client.Client {
	if n.IsAll() {
		return unrestricted
	}
	return &scoped{Client: unrestricted, reader: reader{Reader: unrestricted, namespaces: n}}
}

// Live returns the same for a client without a cache, whose lists are made of one for each namespace.
func (n Namespaces) Live(unrestricted client.Client) client.Client {
	if n.IsAll() {
		return unrestricted
	}
	return &scoped{Client: unrestricted, reader: reader{Reader: unrestricted, namespaces: n, isNamespaced: unrestricted.IsObjectNamespaced}}
}

// Reader returns a reader for which objects of other namespaces do not exist.
func (n Namespaces) Reader(unrestricted client.Reader) client.Reader {
	if n.IsAll() {
		return unrestricted
	}
	return &reader{Reader: unrestricted, namespaces: n}
}

// NewClient returns a manager's function that makes its client.
func (n Namespaces) NewClient() client.NewClientFunc {
	return func(config *rest.Config, options client.Options) (client.Client, error) {
		made, err := client.New(config, options)
		if err != nil {
			return nil, fmt.Errorf("making the client: %w", err)
		}
		return n.Client(made), nil
	}
}

// reader reads only objects of the namespaces. A cache would fail for others, and the API server refuse.
type reader struct {
	client.Reader
	namespaces Namespaces
	// isNamespaced reports whether lists are made of one for each namespace; nil if the reader does that.
	isNamespaced func(runtime.Object) (bool, error)
}

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if !r.namespaces.sees(key.Namespace, object) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.String())
	}
	return r.Reader.Get(ctx, key, object, options...)
}

// List implements client.Reader.
func (r *reader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	if !r.namespaces.sees(asked.Namespace, list) {
		return nil
	}
	if asked.Namespace != "" || r.isNamespaced == nil {
		return r.Reader.List(ctx, list, options...)
	}
	isNamespaced, err := r.isNamespaced(list)
	if err != nil {
		return fmt.Errorf("listing %T: %w", list, err)
	}
	if !isNamespaced {
		return r.Reader.List(ctx, list, options...)
	}
	return r.listEach(ctx, list, options)
}

// listEach lists the objects of all namespaces, one after the other.
func (r *reader) listEach(ctx context.Context, list client.ObjectList, options []client.ListOption) error {
	var all []runtime.Object
	for _, namespace := range r.namespaces.watched {
		page, isList := list.DeepCopyObject().(client.ObjectList)
		if !isList {
			return fmt.Errorf("listing %T: no list", list)
		}
		if err := r.Reader.List(ctx, page, append(slices.Clone(options), client.InNamespace(namespace))...); err != nil {
			return err
		}
		items, err := meta.ExtractList(page)
		if err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}
		all = append(all, items...)
	}
	if err := meta.SetList(list, all); err != nil {
		return fmt.Errorf("listing %T: %w", list, err)
	}
	return nil
}

type scoped struct {
	client.Client
	reader reader
}

// Get implements client.Client.
func (s *scoped) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return s.reader.Get(ctx, key, object, options...)
}

// List implements client.Client.
func (s *scoped) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return s.reader.List(ctx, list, options...)
}
