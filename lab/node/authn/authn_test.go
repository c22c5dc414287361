package authn

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	simeks "github.com/dovetail-k8s/dovetail/lab/awsim/eks"
	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

const (
	account  = "111122223333"
	instance = "i-0123456789abcdef0"
	dnsName  = "ip-10-0-1-23.ec2.internal"
)

// oneInstance is an EC2 that knows instance.
type oneInstance struct{}

func (oneInstance) DescribeInstances(
	_ context.Context,
	in *ec2.DescribeInstancesInput,
	_ ...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	out := &ec2.DescribeInstancesOutput{}
	if in.InstanceIds[0] == instance {
		out.Reservations = []ec2types.Reservation{
			{Instances: []ec2types.Instance{{InstanceId: aws.String(instance), PrivateDnsName: aws.String(dnsName)}}},
		}
	}
	return out, nil
}

// world is an AWS account with cluster "dev" and some roles that anyone in the account may assume.
type world struct {
	sim      *awsim.Sim
	endpoint string
	now      time.Time
}

func newWorld(t *testing.T, mode string, entries ...simeks.AccessEntry) *world {
	t.Helper()
	sim, err := awsim.New(awsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.SeedCluster(awsim.ClusterSpec{
		Name: "dev", Version: "1.36", Endpoint: "https://127.0.0.1:6443", AuthenticationMode: mode, NodeRoleMapping: awsim.MapNone,
	}); err != nil {
		t.Fatal(err)
	}
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}]}`
	for name, path := range map[string]string{"node": "/", "deep": "/team/a/", "people": "/"} {
		if _, err := sim.IAM().CreateRole(iam.Role{Name: name, Path: path, TrustPolicy: trust}); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range entries {
		if _, err := sim.EKS().CreateAccessEntry("dev", e); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	return &world{sim: sim, endpoint: server.URL, now: time.Now()}
}

func (w *world) config(c aws.CredentialsProvider) aws.Config {
	return aws.Config{Region: "us-east-1", BaseEndpoint: aws.String(w.endpoint), Credentials: c}
}

func (w *world) admin() aws.Config {
	return w.config(credentials.NewStaticCredentialsProvider("test", "test", ""))
}

// token is one of a session of a role of the account.
func (w *world) token(t *testing.T, roleARN, session string) string {
	t.Helper()
	out, err := sts.NewFromConfig(w.admin()).AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: &roleARN, RoleSessionName: &session})
	if err != nil {
		t.Fatal(err)
	}
	signer := Signer{Endpoint: w.endpoint, Region: "us-east-1", Cluster: "dev", Now: func() time.Time { return w.now }}
	token, err := signer.Token(t.Context(), aws.Credentials{
		AccessKeyID: *out.Credentials.AccessKeyId, SecretAccessKey: *out.Credentials.SecretAccessKey, SessionToken: *out.Credentials.SessionToken,
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (w *world) authenticator(t *testing.T, authMap string) *Authenticator {
	t.Helper()
	client := fake.NewClientset()
	if authMap != "" {
		client = fake.NewClientset(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"}, Data: map[string]string{"mapRoles": authMap},
		})
	}
	a, err := New(Config{
		Cluster: "dev", STSEndpoint: w.endpoint, EKS: eks.NewFromConfig(w.admin()), EC2: oneInstance{},
		ConfigMaps: client.CoreV1().ConfigMaps("kube-system"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func role(name string) string { return "arn:aws:iam::" + account + ":role/" + name }

const nodeMap = `
- rolearn: arn:aws:iam::111122223333:role/node
  username: system:node:{{EC2PrivateDNSName}}
  groups: [system:bootstrappers, system:nodes]
`

func TestIdentities(t *testing.T) {
	nodes := []string{"system:bootstrappers", "system:nodes"}
	for _, tt := range []struct {
		name    string
		mode    string
		entries []simeks.AccessEntry
		authMap string
		role    string
		session string
		user    string // "" = not authenticated
		groups  []string
		why     string
	}{
		{
			name: "node in aws-auth", mode: "CONFIG_MAP", authMap: nodeMap, role: role("node"), session: instance, user: "system:node:" + dnsName,
			groups: nodes,
		},
		{
			name: "node by access entry", mode: "API", entries: []simeks.AccessEntry{{PrincipalARN: role("node"), Type: "EC2_LINUX"}},
			role: role("node"), session: instance, user: "system:node:" + dnsName, groups: nodes,
		},
		{
			name: "access entry wins over aws-auth", mode: "API_AND_CONFIG_MAP", authMap: nodeMap, role: role("node"), session: instance,
			entries: []simeks.AccessEntry{{PrincipalARN: role("node"), Username: "viewer", Groups: []string{"viewers"}}},
			user:    "viewer", groups: []string{"viewers"},
		},
		{
			name: "aws-auth beside access entries", mode: "API_AND_CONFIG_MAP", authMap: nodeMap, role: role("node"), session: instance,
			user: "system:node:" + dnsName, groups: nodes,
		},
		{name: "mode API does not read aws-auth", mode: "API", authMap: nodeMap, role: role("node"), session: instance, why: "no access entry"},
		{name: "nothing mapped", mode: "API_AND_CONFIG_MAP", role: role("node"), session: instance, why: "no ConfigMap kube-system/aws-auth"},
		{name: "another role mapped", mode: "CONFIG_MAP", authMap: nodeMap, role: role("people"), session: instance, why: "not in ConfigMap"},
		{
			name: "role with a path matches without it", mode: "CONFIG_MAP", role: role("team/a/deep"), session: instance,
			authMap: strings.ReplaceAll(nodeMap, "role/node", "role/deep"), user: "system:node:" + dnsName, groups: nodes,
		},
		{
			name: "aws-auth with the path matches nobody", mode: "CONFIG_MAP", role: role("team/a/deep"), session: instance,
			authMap: strings.ReplaceAll(nodeMap, "role/node", "role/team/a/deep"), why: "not in ConfigMap",
		},
		{
			name: "access entry with the path matches", mode: "API", role: role("team/a/deep"), session: instance,
			entries: []simeks.AccessEntry{{PrincipalARN: role("team/a/deep"), Type: "EC2_LINUX"}}, user: "system:node:" + dnsName, groups: nodes,
		},
		{
			name: "standard entry of a person", mode: "API", role: role("people"), session: "jane@example.com",
			entries: []simeks.AccessEntry{{PrincipalARN: role("people"), Username: "dev:{{SessionName}}", Groups: []string{"devs"}}},
			user:    "dev:jane-example.com", groups: []string{"devs"},
		},
		{
			name: "session that is no instance", mode: "CONFIG_MAP", authMap: nodeMap, role: role("node"), session: "dovetail-lab",
			why: "not that of an instance",
		},
		{name: "aws-auth that is not YAML", mode: "CONFIG_MAP", authMap: "- rolearn: [", role: role("node"), session: instance, why: "mapRoles"},
		{
			name: "unknown template", mode: "CONFIG_MAP", authMap: strings.ReplaceAll(nodeMap, "EC2PrivateDNSName", "EC2PublicDNSName"),
			role: role("node"), session: instance, why: "unknown template",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.mode, tt.entries...)
			user, err := w.authenticator(t, tt.authMap).Authenticate(t.Context(), w.token(t, tt.role, tt.session))
			if tt.why != "" {
				if err == nil || !strings.Contains(err.Error(), tt.why) {
					t.Fatalf("user %q, error %v; want %q in the error", user.Username, err, tt.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if user.Username != tt.user {
				t.Errorf("user %q, want %q", user.Username, tt.user)
			}
			if diff := cmp.Diff(tt.groups, user.Groups); diff != "" {
				t.Errorf("groups (-want +got)\n%s", diff)
			}
			if got := user.Extra["sessionName"]; len(got) != 1 || got[0] != tt.session {
				t.Errorf("sessionName %q, want %q", got, tt.session)
			}
		})
	}
}

// A mapping that is written while the cluster runs counts from the next token on.
func TestMappingIsReadLive(t *testing.T) {
	w := newWorld(t, "API")
	a := w.authenticator(t, "")
	a.cfg.AccessTTL = time.Nanosecond
	token := w.token(t, role("node"), instance)
	if _, err := a.Authenticate(t.Context(), token); !Denied(err) {
		t.Fatalf("unmapped role: %v, want denied", err)
	}
	if _, err := w.sim.EKS().CreateAccessEntry("dev", simeks.AccessEntry{PrincipalARN: role("node"), Type: "EC2_LINUX"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Authenticate(t.Context(), token); err != nil {
		t.Fatalf("after it was mapped: %v", err)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	w := newWorld(t, "CONFIG_MAP")
	a := w.authenticator(t, nodeMap)
	good := w.token(t, role("node"), instance)
	// forged changes the URL inside the good token.
	forged := func(change func(*url.URL, url.Values)) string {
		text, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(good, tokenPrefix))
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		query := u.Query()
		change(u, query)
		u.RawQuery = query.Encode()
		return tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(u.String()))
	}
	for _, tt := range []struct{ name, token, want string }{
		{"none", "", "does not begin with"},
		{"a service account's", "eyJhbGciOi", "does not begin with"},
		{"not base64", tokenPrefix + "%%%", "not base64url"},
		{"too long", tokenPrefix + strings.Repeat("A", maxToken), "longer than"},
		{"another host", forged(func(u *url.URL, _ url.Values) { u.Host = "sts.evil.example" }), `for host "sts.evil.example"`},
		{"a path", forged(func(u *url.URL, _ url.Values) { u.Path = "/x" }), "more than a query"},
		{"another action", forged(func(_ *url.URL, q url.Values) { q.Set("Action", "GetSessionToken") }), "not GetCallerIdentity"},
		{"another parameter", forged(func(_ *url.URL, q url.Values) { q.Set("RoleArn", "x") }), `"RoleArn", which is not allowed`},
		{"a parameter twice", forged(func(_ *url.URL, q url.Values) { q.Add("Action", "GetCallerIdentity") }), "twice"},
		{"cluster not signed", forged(func(_ *url.URL, q url.Values) { q.Set("X-Amz-SignedHeaders", "host") }), "does not sign the header"},
		{"no date", forged(func(_ *url.URL, q url.Values) { q.Del("X-Amz-Date") }), "no valid X-Amz-Date"},
		{"signed 16 minutes ago", forged(func(_ *url.URL, q url.Values) {
			q.Set("X-Amz-Date", time.Now().Add(-16*time.Minute).UTC().Format(amzDate))
		}), "expired"},
		{"signed in the future", forged(func(_ *url.URL, q url.Values) {
			q.Set("X-Amz-Date", time.Now().Add(6*time.Minute).UTC().Format(amzDate))
		}), "in the future"},
		{"an unknown key", forged(func(_ *url.URL, q url.Values) {
			q.Set("X-Amz-Credential", strings.Replace(q.Get("X-Amz-Credential"), "ASIA", "ASIB", 1))
		}), "STS denies the signature"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := a.Authenticate(t.Context(), tt.token)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q in it", err, tt.want)
			}
			if !Denied(err) {
				t.Errorf("error %v does not count as denied", err)
			}
		})
	}
}

// The API server's side: a TokenReview over TLS with the endpoint's own CA.
func TestWebhook(t *testing.T) {
	w := newWorld(t, "CONFIG_MAP")
	endpoint, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- endpoint.Serve(ctx, w.authenticator(t, nodeMap)) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(endpoint.CA())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	review := func(token string) (int, authenticationv1.TokenReview) {
		t.Helper()
		body, err := json.Marshal(authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{
				APIVersion: "authentication.k8s.io/v1",
				Kind:       "TokenReview",
			}, Spec: authenticationv1.TokenReviewSpec{Token: token},
		})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Post(endpoint.URL(), "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var out authenticationv1.TokenReview
		if resp.StatusCode == http.StatusOK {
			if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
				t.Fatal(err)
			}
		}
		return resp.StatusCode, out
	}

	status, out := review(w.token(t, role("node"), instance))
	if status != http.StatusOK || !out.Status.Authenticated || out.Status.User.Username != "system:node:"+dnsName ||
		out.Kind != "TokenReview" {
		t.Errorf("mapped role: %d %+v", status, out)
	}
	if out.Spec.Token != "" {
		t.Error("the answer repeats the token")
	}
	if status, out = review(w.token(t, role("people"), instance)); status != http.StatusOK || out.Status.Authenticated {
		t.Errorf("unmapped role: %d %+v, want an answer that is not authenticated", status, out)
	}
	w.sim.Inject(
		awsim.Fault{
			Service: "sts",
			Action:  "GetCallerIdentity",
			Error:   protocol.Errorf("InternalFailure", "try again").WithStatus(http.StatusInternalServerError),
		},
	)
	if status, _ = review(w.token(t, role("node"), instance)); status != http.StatusInternalServerError {
		t.Errorf("STS is down: %d, want 500, so that the API server asks again", status)
	}
}
