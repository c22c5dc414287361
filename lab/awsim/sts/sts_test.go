package sts_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
)

const account = "111122223333"

func createRole(t *testing.T, w *awsimtest.World, name, path, trust string) iam.Role {
	t.Helper()
	return awsimtest.OK(w.Sim.IAM().CreateRole(iam.Role{Name: name, Path: path, TrustPolicy: trust, MaxSession: 4 * time.Hour}))(t)
}

func allow(principal, action, condition string) string {
	if condition == "" {
		condition = "{}"
	}
	return `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":` + principal + `,"Action":"` + action + `","Condition":` + condition + `}]}`
}

func whoAmI(t *testing.T, cfg aws.Config) *sts.GetCallerIdentityOutput {
	t.Helper()
	return awsimtest.OK(sts.NewFromConfig(cfg).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}))(t)
}

func TestCallerIdentity(t *testing.T) {
	w := awsimtest.Start(t)
	role := createRole(t, w, "controller", "/lab/", allow(`"*"`, "sts:AssumeRole", ""))
	if admin := whoAmI(t, w.Config); *admin.Arn != "arn:aws:iam::"+account+":root" || *admin.Account != account {
		t.Errorf("administrator is %s of %s", *admin.Arn, *admin.Account)
	}
	creds := awsimtest.OK(w.Sim.RoleCredentials("controller"))(t)
	me := whoAmI(t, w.As(creds))
	if *me.Arn != "arn:aws:sts::"+account+":assumed-role/controller/dovetail-lab" || *me.UserId != role.ID+":dovetail-lab" ||
		*me.Account != account {
		t.Errorf("role session is %s, %s of %s", *me.Arn, *me.UserId, *me.Account)
	}
	if _, err := w.Sim.RoleCredentials("nobody"); err == nil {
		t.Error("credentials of a role that does not exist")
	}
	if _, err := w.Sim.InstanceCredentials("i-0123456789abcdef0"); err == nil {
		t.Error("credentials of an instance that does not exist")
	}
}

func assume(cfg aws.Config, in sts.AssumeRoleInput) (*sts.AssumeRoleOutput, error) {
	return sts.NewFromConfig(cfg).AssumeRole(context.Background(), &in)
}

func TestAssumeRole(t *testing.T) {
	w := awsimtest.Start(t)
	role := createRole(t, w, "target", "/", allow(`{"AWS":"arn:aws:iam::111122223333:root"}`, "sts:AssumeRole", ""))
	out := awsimtest.OK(
		assume(w.Config, sts.AssumeRoleInput{RoleArn: &role.ARN, RoleSessionName: aws.String("me@work"), DurationSeconds: aws.Int32(900)}),
	)(
		t,
	)
	if *out.AssumedRoleUser.Arn != "arn:aws:sts::"+account+":assumed-role/target/me@work" ||
		*out.AssumedRoleUser.AssumedRoleId != role.ID+":me@work" {
		t.Errorf("assumed %s, %s", *out.AssumedRoleUser.Arn, *out.AssumedRoleUser.AssumedRoleId)
	}
	if end := w.Clock.Now().Add(15 * time.Minute); !out.Credentials.Expiration.Equal(end) {
		t.Errorf("expires %s, want %s", out.Credentials.Expiration, end)
	}
	cfg := w.As(awsim.Credentials{
		AccessKeyID: *out.Credentials.AccessKeyId, SecretAccessKey: *out.Credentials.SecretAccessKey, SessionToken: *out.Credentials.SessionToken,
	})
	if me := whoAmI(t, cfg); *me.Arn != *out.AssumedRoleUser.Arn {
		t.Errorf("the new credentials are those of %s", *me.Arn)
	}
	w.Clock.Advance(15 * time.Minute)
	if _, err := sts.NewFromConfig(cfg).GetCallerIdentity(t.Context(), nil); awsimtest.Code(err) != "ExpiredToken" {
		t.Errorf("after the session's end: %v, want ExpiredToken", err)
	}
}

func TestAssumeRoleRefused(t *testing.T) {
	w := awsimtest.Start(t)
	root := `{"AWS":"` + account + `"}`
	open := createRole(t, w, "open", "/", allow(root, "sts:AssumeRole", ""))
	guarded := createRole(t, w, "guarded", "/", allow(root, "sts:AssumeRole", `{"StringEquals":{"sts:ExternalId":"42"}}`))
	ec2 := createRole(t, w, "ec2", "/", allow(`{"Service":"ec2.amazonaws.com"}`, "sts:AssumeRole", ""))
	other := createRole(t, w, "other", "/", allow(`{"AWS":"arn:aws:iam::111122223333:role/open"}`, "sts:*", ""))
	denied := createRole(
		t,
		w,
		"denied",
		"/",
		`{"Statement":[{"Effect":"Allow","Principal":"*","Action":["sts:AssumeRole"]},{"Effect":"Deny","Principal":"*","Action":"sts:Assume*"}]}`,
	)
	unknown := createRole(t, w, "unknown", "/", allow(root, "sts:AssumeRole", `{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`))
	session := w.As(awsimtest.OK(w.Sim.RoleCredentials("open"))(t))
	for _, row := range []struct {
		what string
		as   aws.Config
		in   sts.AssumeRoleInput
		code string
	}{
		{"trusted", w.Config, sts.AssumeRoleInput{RoleArn: &open.ARN}, ""},
		{"trusted role", session, sts.AssumeRoleInput{RoleArn: &other.ARN}, ""},
		{"another caller than the trusted role", w.Config, sts.AssumeRoleInput{RoleArn: &other.ARN}, "AccessDenied"},
		{"trusted with the external ID", w.Config, sts.AssumeRoleInput{RoleArn: &guarded.ARN, ExternalId: aws.String("42")}, ""},
		{"wrong external ID", w.Config, sts.AssumeRoleInput{RoleArn: &guarded.ARN, ExternalId: aws.String("43")}, "AccessDenied"},
		{"no external ID", w.Config, sts.AssumeRoleInput{RoleArn: &guarded.ARN}, "AccessDenied"},
		{"a service's role", w.Config, sts.AssumeRoleInput{RoleArn: &ec2.ARN}, "AccessDenied"},
		{"explicit deny", w.Config, sts.AssumeRoleInput{RoleArn: &denied.ARN}, "AccessDenied"},
		{"condition that is not understood", w.Config, sts.AssumeRoleInput{RoleArn: &unknown.ARN}, "AccessDenied"},
		{"no such role", w.Config, sts.AssumeRoleInput{RoleArn: aws.String("arn:aws:iam::111122223333:role/none")}, "AccessDenied"},
		{"right name, wrong path", w.Config, sts.AssumeRoleInput{RoleArn: aws.String("arn:aws:iam::111122223333:role/x/open")}, "AccessDenied"},
		{"not an ARN", w.Config, sts.AssumeRoleInput{RoleArn: aws.String("open-----------------")}, "ValidationError"},
		{"session name with a slash", w.Config, sts.AssumeRoleInput{RoleArn: &open.ARN, RoleSessionName: aws.String("a/b")}, "ValidationError"},
		{"too short", w.Config, sts.AssumeRoleInput{RoleArn: &open.ARN, DurationSeconds: aws.Int32(899)}, "ValidationError"},
		{
			"longer than the role allows", w.Config,
			sts.AssumeRoleInput{RoleArn: &open.ARN, DurationSeconds: aws.Int32(4*3600 + 1)},
			"ValidationError",
		},
		{"as long as the role allows", w.Config, sts.AssumeRoleInput{RoleArn: &open.ARN, DurationSeconds: aws.Int32(4 * 3600)}, ""},
		{"chained for more than an hour", session, sts.AssumeRoleInput{RoleArn: &other.ARN, DurationSeconds: aws.Int32(3601)}, "ValidationError"},
		{"session policy", w.Config, sts.AssumeRoleInput{RoleArn: &open.ARN, Policy: aws.String("{}")}, "UnsupportedOperation"},
	} {
		if row.in.RoleSessionName == nil {
			row.in.RoleSessionName = aws.String("session")
		}
		if _, err := assume(row.as, row.in); awsimtest.Code(err) != row.code {
			t.Errorf("%s: %v, want %q", row.what, err, row.code)
		}
	}
}

// token makes a service account token as the API server's issuer does, with a signature that nobody checks.
func token(t *testing.T, claims map[string]any) *string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return aws.String(encode([]byte(`{"alg":"RS256"}`)) + "." + encode(payload) + "." + encode([]byte("signature")))
}

func TestAssumeRoleWithWebIdentity(t *testing.T) {
	w := awsimtest.Start(t)
	const issuer = "oidc.eks.us-east-1.amazonaws.com/id/ABC"
	provider := "arn:aws:iam::" + account + ":oidc-provider/" + issuer
	role := createRole(t, w, "irsa", "/", allow(`{"Federated":"`+provider+`"}`, "sts:AssumeRoleWithWebIdentity",
		`{"StringEquals":{"`+issuer+`:aud":"sts.amazonaws.com"},"StringLike":{"`+issuer+`:sub":"system:serviceaccount:kube-system:*"}}`))
	claims := func(changes map[string]any) *string {
		all := map[string]any{
			"iss": "https://" + issuer, "sub": "system:serviceaccount:kube-system:karpenter", "aud": []string{"other", "sts.amazonaws.com"},
			"exp": w.Clock.Now().Add(time.Minute).Unix(),
		}
		for name, value := range changes {
			all[name] = value
		}
		return token(t, all)
	}
	anonymous := sts.New(sts.Options{Region: "us-east-1", BaseEndpoint: &w.URL, Retryer: aws.NopRetryer{}})
	with := func(jwt *string) (*sts.AssumeRoleWithWebIdentityOutput, error) {
		return anonymous.AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{
			RoleArn: &role.ARN, RoleSessionName: aws.String("karpenter-1"), WebIdentityToken: jwt,
		})
	}
	out := awsimtest.OK(with(claims(nil)))(t)
	if *out.Audience != "sts.amazonaws.com" || *out.Provider != provider ||
		*out.SubjectFromWebIdentityToken != "system:serviceaccount:kube-system:karpenter" {
		t.Errorf("identity %s for %s from %s", *out.SubjectFromWebIdentityToken, *out.Audience, *out.Provider)
	}
	cfg := w.As(awsim.Credentials{
		AccessKeyID: *out.Credentials.AccessKeyId, SecretAccessKey: *out.Credentials.SecretAccessKey, SessionToken: *out.Credentials.SessionToken,
	})
	if me := whoAmI(t, cfg); *me.Arn != "arn:aws:sts::"+account+":assumed-role/irsa/karpenter-1" {
		t.Errorf("the new credentials are those of %s", *me.Arn)
	}
	for _, row := range []struct {
		what string
		jwt  *string
		code string
	}{
		{"another service account", claims(map[string]any{"sub": "system:serviceaccount:default:karpenter"}), "AccessDenied"},
		{"another audience", claims(map[string]any{"aud": "kubernetes"}), "AccessDenied"},
		{"another issuer", claims(map[string]any{"iss": "https://example.com"}), "AccessDenied"},
		{"expired", claims(map[string]any{"exp": w.Clock.Now().Unix()}), "ExpiredTokenException"},
		{"no subject", claims(map[string]any{"sub": nil}), "InvalidIdentityToken"},
		{"no token", aws.String("token"), "InvalidIdentityToken"},
	} {
		if _, err := with(row.jwt); awsimtest.Code(err) != row.code {
			t.Errorf("%s: %v, want %s", row.what, err, row.code)
		}
	}
}

// eksToken makes a token as "aws eks get-token" does: a presigned GetCallerIdentity that signs the name of the cluster.
func eksToken(t *testing.T, cfg aws.Config, cluster string, now time.Time) string {
	t.Helper()
	presigner := sts.NewPresignClient(sts.NewFromConfig(cfg), func(o *sts.PresignOptions) {
		o.Presigner = at{now}
		o.ClientOptions = append(o.ClientOptions, sts.WithAPIOptions(smithyhttp.AddHeaderValue("x-k8s-aws-id", cluster)))
	})
	signed := awsimtest.OK(presigner.PresignGetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}))(t)
	return "k8s-aws-v1." + base64.RawURLEncoding.EncodeToString([]byte(signed.URL))
}

// at signs as of a moment.
type at struct{ now time.Time }

func (a at) PresignHTTP(
	ctx context.Context,
	c aws.Credentials,
	r *http.Request,
	hash, service, region string,
	_ time.Time,
	options ...func(*v4.SignerOptions),
) (string, http.Header, error) {
	query := r.URL.Query()
	query.Set("X-Amz-Expires", "60")
	r.URL.RawQuery = query.Encode()
	return v4.NewSigner().PresignHTTP(ctx, c, r, hash, service, region, a.now, options...)
}

// resolve does what the authenticator of a cluster does with a token: it queries STS for its owner.
func resolve(t *testing.T, token, cluster string) (int, string) {
	t.Helper()
	address := awsimtest.OK(base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, "k8s-aws-v1.")))(t)
	req := awsimtest.OK(http.NewRequestWithContext(t.Context(), http.MethodGet, string(address), nil))(t)
	if !strings.Contains(req.URL.Query().Get("X-Amz-SignedHeaders"), "x-k8s-aws-id") {
		t.Errorf("the token does not sign the name of the cluster: %s", address)
	}
	req.Header.Set("x-k8s-aws-id", cluster)
	req.Header.Set("Accept", "application/xml")
	resp := awsimtest.OK(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	return resp.StatusCode, string(awsimtest.OK(io.ReadAll(resp.Body))(t))
}

func TestClusterToken(t *testing.T) {
	w := awsimtest.Start(t)
	createRole(t, w, "node", "/", allow(`{"Service":"ec2.amazonaws.com"}`, "sts:AssumeRole", ""))
	token := eksToken(t, w.As(awsimtest.OK(w.Sim.RoleCredentials("node"))(t)), "c1", w.Clock.Now())
	mine := "<Arn>arn:aws:sts::" + account + ":assumed-role/node/dovetail-lab</Arn>"
	for _, row := range []struct {
		what   string
		after  time.Duration
		status int
		answer string
	}{
		{"fresh", 0, http.StatusOK, mine},
		{"older than its X-Amz-Expires", 2 * time.Minute, http.StatusOK, mine},
		{"at the end of the 15 minutes of STS", 13 * time.Minute, http.StatusOK, mine},
		{"later", time.Second, http.StatusForbidden, "Signature expired"},
	} {
		w.Clock.Advance(row.after)
		if status, answer := resolve(t, token, "c1"); status != row.status || !strings.Contains(answer, row.answer) {
			t.Errorf("%s: %d %s, want %d with %q", row.what, status, answer, row.status, row.answer)
		}
	}
	early := eksToken(t, w.Config, "c1", w.Clock.Now().Add(6*time.Minute))
	if status, answer := resolve(t, early, "c1"); status != http.StatusForbidden || !strings.Contains(answer, "not yet current") {
		t.Errorf("token of the future: %d %s", status, answer)
	}
	stranger := w.As(awsim.Credentials{AccessKeyID: "AKIASTRANGER", SecretAccessKey: "x"})
	if status, answer := resolve(t, eksToken(t, stranger, "c1", w.Clock.Now()), "c1"); status != http.StatusForbidden ||
		!strings.Contains(answer, "InvalidClientTokenId") {
		t.Errorf("token of a stranger: %d %s", status, answer)
	}
}
