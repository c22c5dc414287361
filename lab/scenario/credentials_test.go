package scenario

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/labtest"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// serviceAccount is what the controller runs as.
const serviceAccount = "dovetail"

// tokenFile writes a token that the cluster has issued for the controller's service account, as a projected volume
// does.
func tokenFile(ctx context.Context, t *testing.T, w *World, audience string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: serviceAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if err := w.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", err
	}
	file := filepath.Join(t.TempDir(), "token")
	return file, os.WriteFile(file, []byte(request.Status.Token), 0o600)
}

// setEnv sets variables of the controller's environment, in pairs of name and value.
func setEnv(w *World, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		w.SetEnv(pairs[i], pairs[i+1])
	}
}

// chartEnvironment is what the Helm chart gives the controller beside what differs between clusters, in pairs of name
// and value.
func chartEnvironment(t *testing.T) (pairs []string) {
	text, err := os.ReadFile(filepath.Join(labtest.Root, "tools", "chart", "testdata", "default.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "---\n") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(doc), &d); err != nil || d.Kind != "Deployment" {
			continue
		}
		for _, v := range d.Spec.Template.Spec.Containers[0].Env {
			if v.Value != "" && v.Name != "CLUSTER_NAME" && !strings.HasSuffix(v.Name, "_PORT") {
				pairs = append(pairs, v.Name, v.Value)
			}
		}
	}
	if len(pairs) < 2*15 {
		t.Fatalf("the chart sets %v", pairs)
	}
	return pairs
}

// launchesAs waits until count pods of the sample run, and one of their instances was launched in the session that is
// named.
func launchesAs(ctx context.Context, w *World, count int, session string) error {
	if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": fmt.Sprint(count)}); err != nil {
		return err
	}
	if err := awaitPodsRunning(ctx, w, "sample", count); err != nil {
		return err
	}
	var sessions []string
	for _, call := range w.AWS.Calls() {
		if call.Action == "CreateFleet" {
			sessions = append(sessions, call.Principal)
		}
	}
	if last := sessions[len(sessions)-1]; !strings.Contains(last, awsim.ControllerRole(w.Name)+"/"+session) {
		return fmt.Errorf("the node was launched as %s, want a session %s", last, session)
	}
	return nil
}

// The controller gets its role by each of EKS's mechanisms, and its error names the remedy if it gets none. Its
// settings are the Helm chart's.
func TestControllerGetsItsRole(t *testing.T) {
	t.Parallel()
	binary, settings := labtest.Binary(t), chartEnvironment(t)
	begin := func(name string, prepare func(context.Context, *World) error) Step {
		return Step{Name: name, Timeout: time.Minute, Run: func(ctx context.Context, w *World) error {
			if err := w.StopController(ctx); err != nil {
				return err
			}
			if err := prepare(ctx, w); err != nil {
				return err
			}
			return w.StartController(ctx)
		}}
	}
	s := Scenario{
		Name: "credentials", Summary: "the controller's role comes by Pod Identity and by its service account",
		Steps: []Step{
			{
				Name: "without credentials it exits with the remedy", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					setEnv(w, settings...)
					setEnv(
						w,
						"AWS_ACCESS_KEY_ID",
						"",
						"AWS_SECRET_ACCESS_KEY",
						"",
						"AWS_SESSION_TOKEN",
						"",
						"AWS_EC2_METADATA_DISABLED",
						"true",
						"AWS_ENDPOINT_URL_STS",
						w.AWSURL,
					)
					output, err := w.RunController(ctx)
					if err == nil &&
						(!strings.Contains(output, "eks.amazonaws.com/role-arn") || !strings.Contains(output, "pod identity association")) {
						err = fmt.Errorf("the output is: %s", output)
					}
					return err
				},
			},
			begin("start it with EKS Pod Identity", func(ctx context.Context, w *World) error {
				agent := w.AWS.PodIdentityAgent()
				agent.Associate(metav1.NamespaceSystem, serviceAccount, awsim.ControllerRole(w.Name))
				server := httptest.NewServer(agent)
				t.Cleanup(server.Close)
				token, err := tokenFile(ctx, t, w, "pods.eks.amazonaws.com")
				setEnv(w, "AWS_CONTAINER_CREDENTIALS_FULL_URI", server.URL+"/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token)
				return err
			}),
			installPool(manifests.Default, nil),
			{
				Name:    "it launches a node",
				Timeout: time.Minute,
				Run:     func(ctx context.Context, w *World) error { return launchesAs(ctx, w, 1, "eks-") },
			},
			begin("start it with the role of its service account", func(ctx context.Context, w *World) error {
				token, err := tokenFile(ctx, t, w, "sts.amazonaws.com")
				setEnv(
					w,
					"AWS_CONTAINER_CREDENTIALS_FULL_URI",
					"",
					"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
					"",
					"AWS_WEB_IDENTITY_TOKEN_FILE",
					token,
					"AWS_ROLE_ARN",
					"arn:aws:iam::111122223333:role/"+awsim.ControllerRole(w.Name),
					"AWS_ROLE_SESSION_NAME",
					"by-service-account",
				)
				return err
			}),
			{
				Name:    "it launches more",
				Timeout: time.Minute,
				Run:     func(ctx context.Context, w *World) error { return launchesAs(ctx, w, 40, "by-service-account") },
			},
			{
				Name: "its AWS calls are in the metrics", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					text, err := w.Metrics(ctx)
					if err == nil && !strings.Contains(text, `aws_sdk_go_request_total{action="CreateFleet",code="200",service="EC2"}`) {
						err = fmt.Errorf("the metrics have no count of CreateFleet")
					}
					return err
				},
			},
			deleteAll("sample", manifests.Default),
		},
	}
	result := Run(
		t.Context(),
		s,
		world.Config{Dir: t.TempDir(), Executable: binary, Dovetail: filepath.Join(filepath.Dir(binary), "dovetail")},
		Silent{},
	)
	for _, step := range result.Steps {
		t.Logf("%6.1f s  %s %q", step.Seconds, step.Name, step.Notes)
		if !step.Passed {
			t.Errorf("step %q: %s", step.Name, step.Error)
		}
	}
}
