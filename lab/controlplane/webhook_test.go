package controlplane_test

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/lab/controlplane"
	"github.com/dovetail-k8s/dovetail/lab/controlplane/pki"
)

// A token that the API server does not know is the webhook's to judge.
func TestTokenWebhook(t *testing.T) {
	const token, user = "k8s-aws-v1.aHR0cHM6Ly9zdHM", "system:node:ip-10-0-1-9.ec2.internal"
	ca, err := pki.NewAuthority("webhook", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if review.Spec.Token == token {
			review.Status.Authenticated = true
			review.Status.User = authenticationv1.UserInfo{Username: user, Groups: []string{"system:nodes"}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // the client has gone otherwise
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()

	c := startCluster(t, controlplane.Config{
		Name: "webhook", Dir: filepath.Join(t.TempDir(), "state"),
		TokenWebhook: server.URL + "/authenticate", TokenWebhookCA: ca.CA(),
	})
	cfg := c.RESTConfig()
	cfg.CertData, cfg.KeyData, cfg.BearerToken = nil, nil, token
	if got := whoAmI(t, clientOf(t, cfg)); got != user {
		t.Errorf("the token is for %q, want %q", got, user)
	}
	cfg.BearerToken = "k8s-aws-v1.unmapped"
	if _, err := clientOf(t, cfg).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token that the webhook refuses: got %v, want unauthorized", err)
	}
}
