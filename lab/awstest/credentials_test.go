package awstest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

const issuer = "https://oidc.eks.us-east-1.amazonaws.com/id/ABC"

// pod is a process in the cluster of a world. What it knows of AWS is in its environment.
type pod struct {
	*world
	t *testing.T
}

func newPod(t *testing.T) *pod {
	t.Helper()
	w := &world{World: awsimtest.Start(t), t: t, ca: certificate(t)}
	w.Clock.Advance(time.Since(w.Clock.Now())) // the SDK has a clock of its own
	if err := w.Sim.SeedCluster(awsim.ClusterSpec{Name: clusterName, Version: "1.32", Endpoint: endpoint, CA: w.ca, OIDCIssuer: issuer}); err != nil {
		t.Fatal(err)
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	p := &pod{world: w, t: t}
	// The SDK's client for web identities knows no other endpoint than that of its service.
	p.set(
		"AWS_ENDPOINT_URL",
		w.URL,
		"AWS_ENDPOINT_URL_STS",
		w.URL,
		"AWS_CONFIG_FILE",
		os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE",
		os.DevNull,
		"AWS_REGION",
		"us-east-1",
		"AWS_EC2_METADATA_DISABLED",
		"true",
	)
	return p
}

// set sets environment variables, in pairs of name and value.
func (p *pod) set(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		p.t.Setenv(pairs[i], pairs[i+1])
	}
}

// token writes a token of a service account to a file, as a projected volume does.
func (p *pod) token(audience, namespace, account string) string {
	p.t.Helper()
	payload, err := json.Marshal(map[string]any{
		"iss": issuer, "sub": "system:serviceaccount:" + namespace + ":" + account, "aud": []string{audience},
		"exp": p.Clock.Now().Add(time.Hour).Unix(),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(p.t.TempDir(), "token")
	text := "e30." + base64.RawURLEncoding.EncodeToString(payload) + ".c2ln"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// node makes this the pod of an instance with the cluster's node role. It can reach the metadata service.
func (p *pod) node() {
	p.t.Helper()
	cfg := p.config("uid-1")
	c, class := p.start(cfg), nodeClass("default")
	resolve(p.t, c, class)
	i := p.booted(c, claim("general-1", onDemand), class)
	p.advancePastDelays()
	metadata, err := p.Sim.Metadata(i.ID)
	if err != nil {
		p.t.Fatal(err)
	}
	server := httptest.NewServer(metadata)
	p.t.Cleanup(server.Close)
	p.set("AWS_EC2_METADATA_DISABLED", "", "AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
}

// start begins as the controller does, and returns whom AWS takes it for: the role's name.
func (p *pod) whoAmI() (string, error) {
	cfg, err := session.Load(p.t.Context(), session.Options{AppID: "dovetail-test"})
	if err != nil {
		return "", err
	}
	if err := session.Authenticate(p.t.Context(), cfg, os.Getenv); err != nil {
		return "", err
	}
	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(p.t.Context(), &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", err
	}
	arn := strings.Split(awssdk.ToString(who.Arn), "/")
	return arn[min(1, len(arn)-1)], nil
}

func TestCredentials(t *testing.T) {
	role := awsim.ControllerRole(clusterName)
	arn := "arn:aws:iam::111122223333:role/" + role
	for _, tc := range []struct {
		name    string
		prepare func(*pod)
		who     string
		errors  []string // parts of the error; none = no error
	}{
		{
			name: "static", who: "arn:aws:iam::111122223333:root",
			prepare: func(p *pod) { p.set("AWS_ACCESS_KEY_ID", "test", "AWS_SECRET_ACCESS_KEY", "test") },
		},
		{
			name: "static, half", errors: []string{"AWS_SECRET_ACCESS_KEY"},
			prepare: func(p *pod) { p.set("AWS_ACCESS_KEY_ID", "test") },
		},
		{
			name: "role of the service account", who: role,
			prepare: func(p *pod) {
				p.set("AWS_ROLE_ARN", arn, "AWS_WEB_IDENTITY_TOKEN_FILE", p.token("sts.amazonaws.com", "kube-system", "karpenter"))
			},
		},
		{
			name: "role of another service account",
			errors: []string{
				"AWS credentials by the role of the service account", "trust policy of role " + arn, "sts:AssumeRoleWithWebIdentity",
				"system:serviceaccount:default:karpenter", issuer,
			},
			prepare: func(p *pod) {
				p.set("AWS_ROLE_ARN", arn, "AWS_WEB_IDENTITY_TOKEN_FILE", p.token("sts.amazonaws.com", "default", "karpenter"))
			},
		},
		{
			name: "role of the service account, without a token", errors: []string{"restart the pod"},
			prepare: func(p *pod) {
				p.set("AWS_ROLE_ARN", arn, "AWS_WEB_IDENTITY_TOKEN_FILE", filepath.Join(p.t.TempDir(), "nothing"))
			},
		},
		{
			name: "role of the service account, without an OIDC provider", errors: []string{"IAM must have an OIDC provider for " + issuer},
			prepare: func(p *pod) {
				p.set("AWS_ROLE_ARN", arn, "AWS_WEB_IDENTITY_TOKEN_FILE", p.token("sts.amazonaws.com", "kube-system", "karpenter"))
				p.Sim.Inject(awsim.Fault{Service: "sts", Action: "AssumeRoleWithWebIdentity", Times: 9, Error: protocol.Errorf("InvalidIdentityToken", "No OpenIDConnect provider found in your account")})
			},
		},
		{
			name: "pod identity", who: role,
			prepare: func(p *pod) { p.podIdentity(role, "kube-system", "karpenter") },
		},
		{
			name: "pod identity without an association", errors: []string{
				"AWS credentials by EKS Pod Identity",
				"create a pod identity association of system:serviceaccount:kube-system:karpenter",
			},
			prepare: func(p *pod) { p.podIdentity(role, "default", "other") },
		},
		{
			name: "pod identity, without a token", errors: []string{"restart the pod"},
			prepare: func(p *pod) {
				p.podIdentity(role, "kube-system", "karpenter")
				p.set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", filepath.Join(p.t.TempDir(), "nothing"))
			},
		},
		{
			name:    "pod identity with a role that does not trust it",
			errors:  []string{"must allow sts:AssumeRole and sts:TagSession to pods.eks.amazonaws.com"},
			prepare: func(p *pod) { p.podIdentity(awsim.NodeRole(clusterName), "kube-system", "karpenter") },
		},
		{
			name: "pod identity without its agent", errors: []string{"eks-pod-identity-agent must run"},
			prepare: func(p *pod) {
				server := httptest.NewServer(http.NotFoundHandler())
				server.Close()
				p.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", server.URL+"/v1/credentials",
					"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", p.token("pods.eks.amazonaws.com", "kube-system", "karpenter"))
			},
		},
		{name: "role of the instance", who: awsim.NodeRole(clusterName), prepare: func(p *pod) { p.node() }},
		{
			name: "none at all", prepare: func(*pod) {},
			errors: []string{"eks.amazonaws.com/role-arn", "pod identity association"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPod(t)
			tc.prepare(p)
			who, err := p.whoAmI()
			if (err == nil) != (len(tc.errors) == 0) || who != tc.who {
				t.Fatalf("I am %q, error %v", who, err)
			}
			for _, part := range tc.errors {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

// podIdentity runs the agent on the node of the pod, with one association.
func (p *pod) podIdentity(role, namespace, account string) {
	agent := p.Sim.PodIdentityAgent()
	agent.Associate(namespace, account, role)
	server := httptest.NewServer(agent)
	p.t.Cleanup(server.Close)
	p.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", server.URL+"/v1/credentials",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", p.token("pods.eks.amazonaws.com", "kube-system", "karpenter"))
}

func TestRegion(t *testing.T) {
	shared := func(p *pod) {
		file := filepath.Join(p.t.TempDir(), "config")
		if err := os.WriteFile(file, []byte("[default]\nregion = eu-west-3\n"), 0o600); err != nil {
			p.t.Fatal(err)
		}
		p.set("AWS_REGION", "", "AWS_CONFIG_FILE", file)
	}
	for _, tc := range []struct {
		name    string
		prepare func(*pod)
		region  string // empty = it is not known
	}{
		{"environment", func(p *pod) { p.set("AWS_REGION", "eu-west-1", "AWS_DEFAULT_REGION", "eu-west-2") }, "eu-west-1"},
		{"environment, by its other name", func(p *pod) { p.set("AWS_REGION", "", "AWS_DEFAULT_REGION", "eu-west-2") }, "eu-west-2"},
		{"shared configuration", shared, "eu-west-3"},
		{"instance metadata", func(p *pod) { p.node(); p.set("AWS_REGION", "") }, "us-east-1"},
		{"environment before instance metadata", func(p *pod) { p.node(); p.set("AWS_REGION", "eu-west-1") }, "eu-west-1"},
		{"nowhere", func(p *pod) { p.set("AWS_REGION", "") }, ""},
		{"metadata service that does not answer", func(p *pod) {
			server := httptest.NewServer(http.NotFoundHandler())
			server.Close()
			p.set("AWS_REGION", "", "AWS_EC2_METADATA_DISABLED", "", "AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPod(t)
			tc.prepare(p)
			cfg, err := session.Load(t.Context(), session.Options{})
			if cfg.Region != tc.region || (err == nil) != (tc.region != "") {
				t.Errorf("region %q, error %v", cfg.Region, err)
			}
			if err != nil && (!strings.Contains(err.Error(), "set AWS_REGION") || !strings.Contains(err.Error(), "metadata")) {
				t.Errorf("error %q does not say what to set", err)
			}
		})
	}
}

// callRecorder records the calls that an observer sees.
type callRecorder struct {
	mu              sync.Mutex
	calls, attempts []session.Seen
}

func (o *callRecorder) Call(s session.Seen) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, s)
}

func (o *callRecorder) Attempt(s session.Seen) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts = append(o.attempts, s)
}

func TestCallsAreObserved(t *testing.T) {
	p := newPod(t)
	p.set("AWS_ACCESS_KEY_ID", "test", "AWS_SECRET_ACCESS_KEY", "test")
	o := &callRecorder{}
	cfg, err := session.Load(t.Context(), session.Options{Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	client := ec2.NewFromConfig(cfg)
	p.Sim.Inject(
		awsim.Fault{Service: "ec2", Action: "DescribeSubnets", Error: protocol.Errorf("InternalError", "bad minute").WithStatus(500)},
	)
	if _, err := client.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{}); err != nil {
		t.Fatal(err)
	}
	p.Sim.Inject(
		awsim.Fault{Service: "ec2", Action: "DescribeSubnets", Error: protocol.Errorf("UnauthorizedOperation", "no").WithStatus(403)},
	)
	if _, err := client.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{}); err == nil {
		t.Fatal("a call that is refused succeeds")
	}
	show := func(all []session.Seen) (out []string) {
		for _, s := range all {
			if s.Took <= 0 || s.Took > time.Minute {
				t.Errorf("%+v", s)
			}
			out = append(out, fmt.Sprintf("%s %s %s retries=%d", s.Service, s.Action, s.Code, s.Retries))
		}
		return out
	}
	if got, want := fmt.Sprint(show(o.calls)), "[EC2 DescribeSubnets 200 retries=1 EC2 DescribeSubnets 403 retries=0]"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(show(o.attempts)), "[EC2 DescribeSubnets 500 retries=0 EC2 DescribeSubnets 200 retries=0 EC2 DescribeSubnets 403 retries=0]"; got != want {
		t.Errorf("attempts %s, want %s", got, want)
	}
}

// Explain is about the next step of anyone who reads it.
func TestExplain(t *testing.T) {
	call := session.Call{Service: "eks", Action: "DescribeCluster", Otherwise: "set --cluster-endpoint"}
	for _, tc := range []struct {
		fault awsim.Fault
		says  []string
	}{
		{
			awsim.Fault{Error: protocol.Errorf("UnauthorizedOperation", "You are not authorized").WithStatus(403)},
			[]string{"allow eks:DescribeCluster", "dovetail iam-policy", "or set --cluster-endpoint"},
		},
		{
			awsim.Fault{Error: protocol.Errorf("AuthFailure", "AWS was not able to validate the provided access credentials").WithStatus(401)},
			[]string{"does not know these credentials in us-east-1"},
		},
		{awsim.Fault{Error: protocol.Errorf("RequestExpired", "Request has expired.").WithStatus(400)}, []string{"clock of this host is wrong"}},
		{
			awsim.Fault{Error: protocol.Errorf("SignatureDoesNotMatch", "Signature expired: 20200101T000000Z is now earlier").WithStatus(403)},
			[]string{"clock of this host is wrong"},
		},
		{
			awsim.Fault{Error: protocol.Errorf("OptInRequired", "You are not subscribed").WithStatus(403)},
			[]string{"has not enabled eks in us-east-1"},
		},
		{awsim.Fault{Error: protocol.Errorf("InternalError", "x").WithStatus(500), Drop: true}, []string{
			"eks does not respond",
			"com.amazonaws.us-east-1.eks", "AWS_REGION",
		}},
	} {
		w := newWorld(t)
		tc.fault.Times = 9
		w.Sim.Inject(tc.fault)
		_, err := ec2.NewFromConfig(w.Config).DescribeSubnets(context.Background(), &ec2.DescribeSubnetsInput{})
		got := session.Explain(call, "us-east-1", err)
		if got == nil || !errors.Is(got, err) && !strings.Contains(got.Error(), "eks:DescribeCluster") {
			t.Fatalf("got %v", got)
		}
		for _, says := range tc.says {
			if !strings.Contains(got.Error(), says) {
				t.Errorf("%q does not say %q", got, says)
			}
		}
	}
	if err := session.Explain(call, "us-east-1", nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}
