// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// addressIndex is the index of the pods that an address may stand for.
	addressIndex = "diengine.opendilab.org/address"
	// reviewTime is how long the API server's word on a token is believed. A pod
	// whose token it was is looked up in the cache each time.
	reviewTime = time.Minute
	// reviewsPerSecond and reviewBurst are how fast tokens from one address are
	// reviewed, so that nobody with worthless ones takes the calls of the API server
	// from the others; a gateway that many jobs call through has enough of them.
	reviewsPerSecond = 20
	reviewBurst      = 100
	// maxReviews bounds how many tokens are remembered.
	maxReviews = 8192
	// nobodyTime is how long the API server's word is believed that an address
	// is no pod's: only the cache is asked meanwhile.
	nobodyTime = 10 * time.Second
	// maxNobodies bounds how many such addresses are remembered.
	maxNobodies = 8192

	// The claims by which the API server names the pod that a token is bound to.
	claimPodName = "authentication.kubernetes.io/pod-name"
	claimPodUID  = "authentication.kubernetes.io/pod-uid"
)

// evidence is what a caller was identified by.
type evidence string

const (
	byToken   evidence = "token"
	byAddress evidence = "address"
	byNothing evidence = "none"
)

// subject is who sends a request.
type subject struct {
	// by is what it was identified by.
	by evidence
	// pod is the job's pod that sends the request; nil for any other sender.
	pod *corev1.Pod
	// user is who the token was issued to; nil where there was none.
	user *authenticationv1.UserInfo
	// address is where the request came from.
	address string
}

// String names the subject in the log.
func (s *subject) String() string {
	switch {
	case s.pod != nil:
		return fmt.Sprintf("pod %s/%s", s.pod.Namespace, s.pod.Name)
	case s.user != nil:
		return s.user.Username
	}
	return s.address
}

// identifier finds out who sends a request.
type identifier struct {
	// pace holds the reviews of tokens that each address sends to a rate.
	pace    *pace
	store   store
	watches *Watches
	// reviews are what the API server said of tokens, and nobodies the addresses
	// of which it said that no pod has them: it looks through all pods to find
	// out, and who comes through a gateway comes each second.
	reviews, nobodies *cache.LRUExpireCache
}

func newIdentifier(store store, watches *Watches, clock cache.Clock) *identifier {
	return &identifier{
		store: store, watches: watches,
		pace:     newPace("tokens to review from one address", reviewsPerSecond, reviewBurst),
		reviews:  cache.NewLRUExpireCacheWithClock(maxReviews, clock),
		nobodies: cache.NewLRUExpireCacheWithClock(maxNobodies, clock),
	}
}

// identify returns who sends a request: whoever its token was issued to, else
// the pod that has the address it came from. An address that is not known yet
// is waited for, if the caller is to be patient, until the context ends: a
// container may run before the cluster knows its pod's address.
func (i *identifier) identify(ctx context.Context, request *http.Request, patient bool) (*subject, error) {
	found := &subject{by: byNothing, address: request.RemoteAddr}
	if header := request.Header.Get("Authorization"); header != "" {
		return i.byToken(ctx, found, header)
	}
	from, _ := netip.ParseAddrPort(request.RemoteAddr)
	if !from.IsValid() {
		// Such as a socket's, by which nobody is known.
		return found, nil
	}
	pod, err := i.podAt(ctx, from.Addr().Unmap(), patient)
	if pod != nil {
		found.by, found.pod = byAddress, pod
	}
	return found, err
}

// byToken completes a subject by what its token says.
func (i *identifier) byToken(ctx context.Context, found *subject, header string) (*subject, error) {
	scheme, token, _ := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, failure(KindUnauthenticated, "Authorization: must be Bearer and a token of audience %s", names.ServerAudience)
	}
	user, err := i.review(ctx, token, host(found.address))
	if err != nil {
		return nil, err
	}
	found.by, found.user = byToken, user
	pod, err := i.boundPod(ctx, user)
	found.pod = pod
	return found, err
}

// review asks the API server whose token it is, and remembers what it said
// under the token's hash.
func (i *identifier) review(ctx context.Context, token, from string) (*authenticationv1.UserInfo, error) {
	key := sha256.Sum256([]byte(token))
	if known, ok := i.reviews.Get(key); ok {
		user, isUser := known.(*authenticationv1.UserInfo)
		if isUser {
			return user, nil
		}
	}
	if err := i.pace.wait(ctx, from); err != nil {
		return nil, err
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
		Token: token, Audiences: []string{names.ServerAudience},
	}}
	if err := persist(ctx, func(ctx context.Context) error { return i.store.create(ctx, review) }); err != nil {
		return nil, fmt.Errorf("reviewing a token: %w", err)
	}
	if !review.Status.Authenticated || !slices.Contains(review.Status.Audiences, names.ServerAudience) {
		return nil, failure(KindUnauthenticated, "the token is not valid: it must be a current one of audience %s", names.ServerAudience)
	}
	i.reviews.Add(key, &review.Status.User, reviewTime)
	return &review.Status.User, nil
}

// boundPod returns the live pod of a job that a token is bound to; nil where it
// is bound to none.
func (i *identifier) boundPod(ctx context.Context, user *authenticationv1.UserInfo) (*corev1.Pod, error) {
	name, uid := claim(user, claimPodName), claim(user, claimPodUID)
	namespace, isServiceAccount := serviceAccountNamespace(user.Username)
	if name == "" || !isServiceAccount {
		return nil, nil
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	var pod corev1.Pod
	err := i.store.get(ctx, key, &pod)
	if apierrors.IsNotFound(err) || err == nil && string(pod.UID) != uid {
		pod = corev1.Pod{}
		err = persist(ctx, func(ctx context.Context) error { return i.store.live(ctx, key, &pod) })
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, failure(KindUnauthenticated, "the token's pod %q is gone", key).because(err)
	case err != nil:
		return nil, fmt.Errorf("reading pod %s: %w", key, err)
	case string(pod.UID) != uid || !isLive(&pod):
		return nil, failure(KindUnauthenticated, "the token's pod %q is gone", key)
	}
	return &pod, nil
}

func claim(user *authenticationv1.UserInfo, name string) string {
	values := user.Extra[name]
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// serviceAccountNamespace returns the namespace of a service account by its
// user name, system:serviceaccount:NAMESPACE:NAME.
func serviceAccountNamespace(username string) (string, bool) {
	rest, found := strings.CutPrefix(username, "system:serviceaccount:")
	namespace, _, complete := strings.Cut(rest, ":")
	return namespace, found && complete
}

// podAt returns the only pod that has an address; nil where there is none, or
// more than one, so that nobody can tell which.
func (i *identifier) podAt(ctx context.Context, address netip.Addr, patient bool) (*corev1.Pod, error) {
	pod, err := i.cachedPodAt(ctx, address)
	if pod != nil || err != nil {
		return pod, err
	}
	if pod, err = i.livePodAt(ctx, address); pod != nil || err != nil || !patient {
		return pod, err
	}
	err = persist(ctx, func(ctx context.Context) error {
		if pod, err = i.cachedPodAt(ctx, address); pod == nil && err == nil {
			return errNotYet
		}
		return err
	})
	if failed := new(Error); errors.As(err, &failed) && failed.Kind == KindUnavailable && i.watches.broken() == 0 {
		return nil, nil
	}
	return pod, err
}

func (i *identifier) cachedPodAt(ctx context.Context, address netip.Addr) (*corev1.Pod, error) {
	pods, err := i.store.pods(ctx, addressIndex, address.String())
	if err != nil {
		return nil, fmt.Errorf("finding the pod at %s: %w", address, err)
	}
	return only(pods), nil
}

// livePodAt asks the API server, for a pod that the cache does not know yet.
func (i *identifier) livePodAt(ctx context.Context, address netip.Addr) (*corev1.Pod, error) {
	if _, known := i.nobodies.Get(address); known {
		return nil, nil
	}
	var list corev1.PodList
	selector := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("status.podIP", address.String())}
	err := persist(ctx, func(ctx context.Context) error {
		return i.store.liveList(ctx, &list, selector)
	})
	if err != nil {
		return nil, fmt.Errorf("finding the pod at %s: %w", address, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if pod := &list.Items[i]; len(standsFor(pod)) > 0 {
			pods = append(pods, pod)
		}
	}
	found := only(pods)
	if found == nil {
		i.nobodies.Add(address, true, nobodyTime)
	}
	return found, nil
}

func only(pods []*corev1.Pod) *corev1.Pod {
	if len(pods) != 1 {
		return nil
	}
	return pods[0]
}

// standsFor returns the addresses by which a pod can be told: those of a live
// pod that does not share its node's.
func standsFor(pod *corev1.Pod) []string {
	if pod.Spec.HostNetwork || !isLive(pod) {
		return nil
	}
	addresses := make([]string, 0, len(pod.Status.PodIPs))
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			addresses = append(addresses, address.Unmap().String())
		}
	}
	return addresses
}

// isLive says whether a pod's processes may still run.
func isLive(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}
