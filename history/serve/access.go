// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

const (
	// reviewTime is how long a token counts as reviewed. allowedTime and deniedTime are how long a right
	// is. The caches are those of the API server's own library, with bounds.
	reviewTime  = time.Minute
	allowedTime = time.Minute
	deniedTime  = 10 * time.Second
	// reviewTimeout bounds one review.
	reviewTimeout = 10 * time.Second
)

// Audience is that of the tokens that programs of the installation send. The API server accepts none of these, so
// a stolen one cannot act as the operator.
const Audience = "di-history"

// Access asks the API server who a caller is, and what it may do.
type Access struct {
	// Tokens are those for the API server, which users send, and Programs those with the Audience.
	Tokens, Programs authenticator.Request
	Rights           authorizer.Authorizer
}

// NewAccess returns an Access that sends its reviews to the API server of the configuration.
func NewAccess(config *rest.Config, by *http.Client) (Access, error) {
	tokens, err := authenticationv1.NewForConfigAndClient(config, by)
	if err != nil {
		return Access{}, fmt.Errorf("making the client of token reviews: %w", err)
	}
	rights, err := authorizationv1.NewForConfigAndClient(config, by)
	if err != nil {
		return Access{}, fmt.Errorf("making the client of access reviews: %w", err)
	}
	retry := &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 4}
	of, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                &apiserver.AnonymousAuthConfig{Enabled: false},
		CacheTTL:                 reviewTime,
		TokenAccessReviewClient:  tokens,
		TokenAccessReviewTimeout: reviewTimeout,
		WebhookRetryBackoff:      retry,
	}.New()
	if err != nil {
		return Access{}, fmt.Errorf("making the reviewer of tokens: %w", err)
	}
	may, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: rights,
		AllowCacheTTL:             allowedTime,
		DenyCacheTTL:              deniedTime,
		WebhookRetryBackoff:       retry,
	}.New()
	if err != nil {
		return Access{}, fmt.Errorf("making the reviewer of rights: %w", err)
	}
	return Access{Tokens: of, Programs: programs{of}, Rights: may}, nil
}

// programs accepts tokens with the Audience only.
type programs struct{ authenticator.Request }

func (p programs) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	return p.Request.AuthenticateRequest(r.WithContext(authenticator.WithAudiences(r.Context(), authenticator.Audiences{Audience})))
}
