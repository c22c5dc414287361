package console

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// RightPath is the non-resource URL that a user needs the verb get for, to read a console that is reached from other computers. It is one
// right for the whole console, which shows what the controller reads: nodes, pods and NodePools of all namespaces.
const RightPath = "/console"

// readerRule is the rule of a ClusterRole that lets a user read the console.
const readerRule = "- nonResourceURLs: [\"" + RightPath + "\"]\n  verbs: [get]\n"

const (
	// allowedAge sets how long a user who was let in stays so: a right that is taken away, or a token that expires, finishes within it.
	allowedAge = 30 * time.Second
	// refusedAge sets how long a refusal is repeated without a review: a right that has just been given works after it.
	refusedAge = 3 * time.Second
	// maxDecisions bounds the decisions that are kept. More people than that do not look at once.
	maxDecisions = 1000
	// maxReviews limits how many reviews are under way at once: anyone who sends made-up tokens must not keep the API server busy.
	maxReviews = 8
	// reviewTimeout sets how long a review may take. The API server answers within milliseconds; a webhook behind it takes longer.
	reviewTimeout = 10 * time.Second
	// maxToken is longer than any token of Kubernetes, OIDC or EKS, in bytes.
	maxToken = 16 << 10
)

// Reviewer decides who reads the console.
type Reviewer interface {
	// User is the user of a token; nil for a token of nobody.
	User(ctx context.Context, token string) (*authenticationv1.UserInfo, error)
	// May reports whether the user has the right.
	May(ctx context.Context, user *authenticationv1.UserInfo) (bool, error)
}

// APIReviewer is an API server as the Reviewer: by TokenReview and SubjectAccessReview, which need the verb create.
type APIReviewer struct{ kubernetes.Interface }

// User implements Reviewer.
func (r APIReviewer) User(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	review, err := r.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review the token: %w", err)
	}
	if !review.Status.Authenticated {
		return nil, nil
	}
	return &review.Status.User, nil
}

// May implements Reviewer.
func (r APIReviewer) May(ctx context.Context, user *authenticationv1.UserInfo) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review, err := r.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: RightPath, Verb: "get"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review the user's right: %w", err)
	}
	return review.Status.Allowed, nil
}

// access lets in who has a token of a user with the right.
type access struct {
	reviewer Reviewer
	now      func() time.Time
	// reviews has a value for each review under way.
	reviews chan struct{}

	mu sync.Mutex
	// decisions are by the hash of the token, which is kept nowhere.
	decisions map[[sha256.Size]byte]decision
}

// decision states who is let in until when; why not, if refused is set.
type decision struct {
	refused *Problem
	until   time.Time
}

func newAccess(r Reviewer, now func() time.Time) *access {
	return &access{reviewer: r, now: now, reviews: make(chan struct{}, maxReviews), decisions: map[[sha256.Size]byte]decision{}}
}

// protect answers the API only to users with the right. The page itself has nothing of the cluster: a browser loads it without a token,
// queries the user for one, and sends that with each request. There is no cookie that a request of another site would have, too.
func (a *access) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, apiRoot) {
			next.ServeHTTP(w, r)
			return
		}
		token := bearer(r)
		if refused := a.check(r.Context(), token); refused != nil {
			if refused.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="dovetail console"`)
			}
			writeProblem(w, refused)
			return
		}
		ctx, end := context.WithCancel(r.Context())
		defer end()
		if strings.HasSuffix(r.URL.Path, eventsPath) {
			go a.review(ctx, token, end)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// bearer is the token of a request; empty if it has none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// review stops a request that lasts, a stream of events, once its user would not be let in any more.
func (a *access) review(ctx context.Context, token string, end func()) {
	again := time.NewTicker(allowedAge)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			if refused := a.check(ctx, token); refused != nil && refused.Status != http.StatusServiceUnavailable {
				end()
				return
			}
		}
	}
}

// check returns why a token is refused; nil if it is not.
func (a *access) check(ctx context.Context, token string) *Problem {
	if token == "" || len(token) > maxToken {
		return &Problem{
			Status: http.StatusUnauthorized, Code: CodeUnauthenticated, Message: "the console needs the token of a user who may read it",
		}
	}
	key := sha256.Sum256([]byte(token))
	a.mu.Lock()
	known, found := a.decisions[key]
	a.mu.Unlock()
	if found && a.now().Before(known.until) {
		return known.refused
	}
	select {
	case a.reviews <- struct{}{}:
		defer func() { <-a.reviews }()
	default:
		return &Problem{Status: http.StatusServiceUnavailable, Code: CodeBusy, Message: "too many users log in at once: try again"}
	}
	refused, err := a.decide(ctx, token)
	if err != nil {
		return &Problem{Status: http.StatusServiceUnavailable, Code: CodeAway, Message: "the API server cannot check who you are: " + err.Error()}
	}
	age := allowedAge
	if refused != nil {
		age = refusedAge
	}
	a.keep(key, decision{refused, a.now().Add(age)})
	return refused
}

func (a *access) decide(ctx context.Context, token string) (refused *Problem, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	user, err := a.reviewer.User(ctx, token)
	if err != nil {
		return nil, err
	}
	if user == nil {
		return &Problem{
			Status: http.StatusUnauthorized, Code: CodeUnauthenticated, Message: "the API server does not accept this token: it is wrong, or has expired",
		}, nil
	}
	may, err := a.reviewer.May(ctx, user)
	if err != nil || may {
		return nil, err
	}
	return &Problem{
		Status: http.StatusForbidden, Code: CodeNotAllowed, Rule: readerRule,
		Message: fmt.Sprintf("user %s may not get %s, the right to read the console", user.Username, RightPath),
	}, nil
}

// keep keeps a decision, unless there are too many that count.
func (a *access) keep(key [sha256.Size]byte, d decision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.decisions) >= maxDecisions {
		now := a.now()
		maps.DeleteFunc(a.decisions, func(_ [sha256.Size]byte, old decision) bool { return !now.Before(old.until) })
	}
	if len(a.decisions) < maxDecisions {
		a.decisions[key] = d
	}
}
