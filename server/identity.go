// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/internal/podstate"
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
	// expiryLeeway is how long a token that says it has expired is asked about, as
	// clocks differ.
	expiryLeeway = time.Minute
	// maxToken bounds the bytes of a token.
	maxToken = 8 << 10
	// maxReviews bounds how many tokens are remembered.
	maxReviews = 8192
	// worthlessTime is how long its word is believed that a token is worth nothing.
	worthlessTime = 2 * time.Second
	// strangersPerSecond and strangersBurst are how fast tokens are reviewed that
	// come from no pod of a job, all together.
	strangersPerSecond = 50
	strangersBurst     = 200
	// nobodyTime is how long the API server's word is believed that an address
	// is no pod's: only the cache is asked meanwhile. gatewayTime is the same where
	// the call is let in.
	nobodyTime  = 2 * time.Second
	gatewayTime = 10 * time.Second
	// rememberedTime is how long an address is remembered that was nobody's.
	rememberedTime = 10 * time.Minute
	// addressesPerSecond and addressBurst are how fast the API server is asked
	// whose an address is, all together.
	addressesPerSecond = 5
	addressBurst       = 10
	// residentInterval is how often the cache is asked whose an address is.
	residentInterval = 50 * time.Millisecond
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
	byNode    evidence = "node"
	byNothing evidence = "none"
)

// subject is who sends a request.
type subject struct {
	// by is what it was identified by.
	by evidence
	// pod is the job's pod that sends the request; nil for any other sender.
	pod *corev1.Pod
	// sharing are the jobs' pods that share the address with their node, of which
	// one may have sent the request.
	sharing []*corev1.Pod
	// user is who the token was issued to; nil where there was none.
	user *authenticationv1.UserInfo
	// address is where the request came from.
	address string
}

// pods returns the pods that the sender may be.
func (s *subject) pods() []*corev1.Pod {
	if s.pod != nil {
		return []*corev1.Pod{s.pod}
	}
	return s.sharing
}

// account names whom the sender's look-ups are counted for: the pods of a job
// together, so that a large one has no more than others.
func (s *subject) account() string {
	if s.pod != nil {
		if owner := jobOwner(s.pod); owner != nil {
			return "job/" + string(owner.UID)
		}
	}
	if s.user != nil {
		return "user/" + s.user.Username
	}
	return netlimit.Host(s.address)
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
	mode Mode
	// strict is whether nobody is known by the address of a node.
	strict bool
	// patience is how long an address that is not known is waited for.
	patience time.Duration
	// pace holds the reviews of tokens that each address sends to a rate, and
	// strangers those of all addresses that are no job's.
	pace, strangers *pace
	// asking holds the questions whose an address is to a rate.
	asking  *pace
	store   store
	lookups *lookups
	watches *Watches
	clock   clock.PassiveClock
	// reviews are what the API server said of tokens, and nobodies when it said of
	// which addresses that no pod has them: who comes through a gateway comes each
	// second.
	reviews, nobodies *cache.LRUExpireCache
}

func newIdentifier(options *Options, store store, lookups *lookups) *identifier {
	return &identifier{
		mode: options.Identity, strict: options.StrictAddresses, patience: options.Times.Address,
		store: store, lookups: lookups, watches: options.Watches, clock: options.Clock,
		pace:      newPace("tokens to review from one address", reviewsPerSecond, reviewBurst),
		strangers: newPace("tokens to review from addresses of no job", strangersPerSecond, strangersBurst),
		asking:    newPace("addresses to look up", addressesPerSecond, addressBurst),
		reviews:   cache.NewLRUExpireCacheWithClock(maxReviews, options.Clock),
		nobodies:  cache.NewLRUExpireCacheWithClock(maxNobodies, options.Clock),
	}
}

// identify returns who sends a request: whoever its token was issued to, else
// the pod that has the address it came from.
func (i *identifier) identify(ctx context.Context, request *http.Request) (*subject, error) {
	found := &subject{by: byNothing, address: request.RemoteAddr}
	if header := request.Header.Get("Authorization"); header != "" {
		return i.byToken(ctx, found, header)
	}
	from, _ := netip.ParseAddrPort(request.RemoteAddr)
	if !from.IsValid() {
		// Such as a socket's, by which nobody is known.
		return found, nil
	}
	return found, i.residents(ctx, found, from.Addr().Unmap())
}

// byToken completes a subject by what its token says.
func (i *identifier) byToken(ctx context.Context, found *subject, header string) (*subject, error) {
	scheme, token, _ := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, failure(KindUnauthenticated, "Authorization: must be Bearer and a token of audience %s", names.ServerAudience)
	}
	user, err := i.review(ctx, token, found.address)
	if err != nil {
		return nil, err
	}
	found.by, found.user = byToken, user
	found.pod, err = i.boundPod(ctx, found)
	return found, err
}

// review asks the API server whose token it is, and remembers what it said
// under the token's hash. A token that says itself that it is for others is not
// worth a question.
func (i *identifier) review(ctx context.Context, token, address string) (*authenticationv1.UserInfo, error) {
	if !mayBeOurs(token, i.clock.Now()) {
		return nil, worthless()
	}
	key := sha256.Sum256([]byte(token))
	if known, ok := i.reviews.Get(key); ok {
		if user, isUser := known.(*authenticationv1.UserInfo); isUser && user != nil {
			return user, nil
		}
		return nil, worthless()
	}
	if err := i.mayReview(ctx, address); err != nil {
		return nil, err
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
		Token: token, Audiences: []string{names.ServerAudience},
	}}
	if err := persist(ctx, func(ctx context.Context) error { return i.store.create(ctx, review) }); err != nil {
		return nil, fmt.Errorf("reviewing a token: %w", err)
	}
	if !review.Status.Authenticated || !slices.Contains(review.Status.Audiences, names.ServerAudience) {
		i.reviews.Add(key, (*authenticationv1.UserInfo)(nil), worthlessTime)
		return nil, worthless()
	}
	i.reviews.Add(key, &review.Status.User, reviewTime)
	return &review.Status.User, nil
}

func worthless() error {
	return failure(KindUnauthenticated, "the token is not valid: it must be a current one of audience %s", names.ServerAudience)
}

// mayReview returns when a token from an address may be reviewed. Those from the
// jobs' pods do not wait for those from anybody else.
func (i *identifier) mayReview(ctx context.Context, remote string) error {
	sender := &subject{by: byNothing, address: remote}
	if from, err := netip.ParseAddrPort(remote); err == nil {
		if err := i.cachedAt(ctx, sender, from.Addr().Unmap()); err != nil {
			return err
		}
	}
	if err := i.pace.wait(ctx, netlimit.Host(remote)); err != nil {
		return err
	}
	if sender.pod != nil && jobOwner(sender.pod) != nil || len(sender.sharing) > 0 {
		return nil
	}
	return i.strangers.wait(ctx, "")
}

// mayBeOurs reports whether a token may be valid, as far as it says so itself: one
// that has the form of a JSON Web Token has to name our audience and may not
// have expired. Of others only the API server knows.
func mayBeOurs(token string, now time.Time) bool {
	if len(token) > maxToken {
		return false
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return true
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var claims struct {
		Audience json.RawMessage `json:"aud"`
		Expiry   *float64        `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return false
	}
	if claims.Expiry != nil && *claims.Expiry+expiryLeeway.Seconds() < float64(now.Unix()) {
		return false
	}
	var one string
	var several []string
	if json.Unmarshal(claims.Audience, &one) == nil {
		several = []string{one}
	} else if json.Unmarshal(claims.Audience, &several) != nil {
		return false
	}
	return slices.Contains(several, names.ServerAudience)
}

// boundPod returns the live pod that the token of a sender is bound to; nil where
// it is bound to none.
func (i *identifier) boundPod(ctx context.Context, sender *subject) (*corev1.Pod, error) {
	user := sender.user
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
		err = i.lookups.read(ctx, sender, key, &pod)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, failure(KindUnauthenticated, "the token's pod %q is gone", key).because(err)
	case err != nil:
		return nil, fmt.Errorf("reading pod %s: %w", key, err)
	case string(pod.UID) != uid || podstate.Finished(&pod):
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

// residents completes a subject by whoever has its address, and waits for what is
// not known yet: a container may run before the cluster knows its pod's address.
// It waits long enough that nobody is mistaken for a stranger, and no longer: the
// rest are strangers, who are told so.
func (i *identifier) residents(ctx context.Context, found *subject, address netip.Addr) error {
	if err := i.cachedAt(ctx, found, address); err != nil || found.by != byNothing {
		return err
	}
	if i.mode == ModeLegacy && i.isGateway(address) {
		// Waiting would keep waiting all who come that way.
		return i.liveAt(ctx, found, address, gatewayTime)
	}
	if err := i.await(ctx, found, address); err != nil || found.by != byNothing {
		return err
	}
	if err := i.liveAt(ctx, found, address, nobodyTime); err != nil || found.by != byNothing {
		return err
	}
	if err := i.await(ctx, found, address); err != nil || found.by != byNothing {
		return err
	}
	if broken := i.watches.broken(); broken > 0 {
		return unavailable(fmt.Errorf("finding the pod at %s: a watch has been broken for %s", address, broken))
	}
	return nil
}

// await asks the cache again and again, for half of the time that an address
// that is not known is given.
func (i *identifier) await(ctx context.Context, found *subject, address netip.Addr) error {
	bounded, cancel := context.WithTimeout(ctx, i.patience/2)
	defer cancel()
	err := wait.PollUntilContextCancel(bounded, residentInterval, false, func(ctx context.Context) (bool, error) {
		err := i.cachedAt(ctx, found, address)
		return found.by != byNothing, err
	})
	if wait.Interrupted(err) {
		return context.Cause(ctx)
	}
	return err
}

// cachedAt completes a subject by what the cache says of its address.
func (i *identifier) cachedAt(ctx context.Context, found *subject, address netip.Addr) error {
	pods, err := i.store.pods(ctx, addressIndex, address.String())
	if err != nil {
		return fmt.Errorf("finding the pod at %s: %w", address, err)
	}
	found.settle(pods, i.strict)
	return nil
}

// isGateway reports whether an address was nobody's when it called before. A pod's
// own would be known by then.
func (i *identifier) isGateway(address netip.Addr) bool {
	_, known := i.nobodies.Get(address)
	return known
}

// liveAt completes a subject by what the API server says of its address, which
// the cache does not know. It looks through all pods to find out, so it is not
// asked again so soon about the same address.
func (i *identifier) liveAt(ctx context.Context, found *subject, address netip.Addr, pause time.Duration) error {
	if last, known := i.nobodies.Get(address); known {
		if asked, isTime := last.(time.Time); isTime && i.clock.Now().Sub(asked) < pause {
			return nil
		}
	}
	if err := i.asking.wait(ctx, ""); err != nil {
		return err
	}
	var list corev1.PodList
	selector := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("status.podIP", address.String())}
	err := persist(ctx, func(ctx context.Context) error { return i.store.liveList(ctx, &list, selector) })
	if err != nil {
		return fmt.Errorf("finding the pod at %s: %w", address, err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for n := range list.Items {
		if pod := &list.Items[n]; len(standsFor(pod)) > 0 {
			pods = append(pods, pod)
		}
	}
	if found.settle(pods, i.strict); found.by == byNothing {
		i.nobodies.Add(address, i.clock.Now(), rememberedTime)
	}
	return nil
}

// settle says who the sender is, given the pods that its address may stand for:
// the only pod that has it, or the jobs' pods that share their node's. Where two
// pods say that it is their own nobody can tell which it is.
func (s *subject) settle(pods []*corev1.Pod, strict bool) {
	var own, sharing []*corev1.Pod
	for _, pod := range pods {
		if pod.Spec.HostNetwork {
			sharing = append(sharing, pod)
		} else {
			own = append(own, pod)
		}
	}
	switch {
	case len(own) == 1:
		s.by, s.pod = byAddress, own[0]
	case len(own) == 0 && len(sharing) > 0 && !strict:
		s.by, s.sharing = byNode, sharing
	}
}

// standsFor returns the addresses by which a pod can be told: those of a live
// pod. One that shares its node's is only told by it where it is a job's, as many
// that are not share it too.
func standsFor(pod *corev1.Pod) []string {
	if podstate.Finished(pod) || pod.Spec.HostNetwork && jobOwner(pod) == nil {
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
