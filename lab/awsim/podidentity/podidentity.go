// Package podidentity simulates the EKS Pod Identity agent of a cluster: it gives a pod, for the token of its service
// account, the credentials of the role that is associated with the account.
//
// Signatures of tokens are not verified; their audience, expiry and subject are.
package podidentity

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
)

// audience is of the tokens that the agent takes.
const audience = "pods.eks.amazonaws.com"

// Config is what an Agent needs.
type Config struct {
	AccountID string
	// Credentials are new ones of a role that trusts EKS to hand it to pods.
	Credentials func(role string) (credential.Credentials, error)
	Now         func() time.Time
}

// Agent answers at AWS_CONTAINER_CREDENTIALS_FULL_URI. It is safe for concurrent use.
type Agent struct {
	cfg Config

	mu    sync.Mutex
	roles map[string]string // by the subject of tokens
}

// New returns an agent without associations.
func New(cfg Config) *Agent { return &Agent{cfg: cfg, roles: map[string]string{}} }

// Associate gives a service account a role.
func (a *Agent) Associate(namespace, account, role string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roles["system:serviceaccount:"+namespace+":"+account] = role
}

// ServeHTTP implements http.Handler.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Path != "/v1/credentials" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	c, status, err := a.credentials(r.Header.Get("Authorization"))
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{ // fails only if the client has disconnected
		"AccessKeyId": c.AccessKeyID, "SecretAccessKey": c.SecretAccessKey, "Token": c.SessionToken,
		"AccountId": a.cfg.AccountID, "Expiration": c.Expiration.UTC().Format(time.RFC3339),
	})
}

// credentials are those of the role of a token's subject.
func (a *Agent) credentials(token string) (credential.Credentials, int, error) {
	none := credential.Credentials{}
	subject, err := a.subject(token)
	if err != nil {
		return none, http.StatusBadRequest, err
	}
	a.mu.Lock()
	role, ok := a.roles[subject]
	a.mu.Unlock()
	if !ok {
		return none, http.StatusNotFound, fmt.Errorf(
			"fetching credentials from EKS Auth: ResourceNotFoundException: no pod identity association for %s",
			subject,
		)
	}
	c, err := a.cfg.Credentials(role)
	if err != nil {
		return none, http.StatusForbidden, fmt.Errorf("fetching credentials from EKS Auth: AccessDeniedException: %w", err)
	}
	return c, 0, nil
}

// subject returns the service account of a token.
func (a *Agent) subject(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("service account token is not a JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", fmt.Errorf("service account token: %w", err)
	}
	var claims struct {
		Subject  string   `json:"sub"`
		Audience []string `json:"aud"`
		Expires  int64    `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", fmt.Errorf("service account token: %w", err)
	}
	if len(claims.Audience) != 1 || claims.Audience[0] != audience {
		return "", fmt.Errorf("service account token is for %v, not for %s", claims.Audience, audience)
	}
	if !a.cfg.Now().Before(time.Unix(claims.Expires, 0)) {
		return "", fmt.Errorf("service account token is expired")
	}
	return claims.Subject, nil
}
