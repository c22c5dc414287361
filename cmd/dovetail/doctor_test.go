package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
)

// The exit code reports whether anything is wrong; findings of severity info are only printed with --all.
func TestDoctorPrints(t *testing.T) {
	finding := func(severity doctor.Severity) doctor.Finding {
		return doctor.Finding{
			Check:    "c",
			Severity: severity,
			Object:   "X y",
			Seen:     "seen " + string(severity),
			Manifest: "kind: " + string(severity) + "\n",
		}
	}
	for _, tt := range []struct {
		name     string
		flags    doctorFlags
		findings []doctor.Finding
		exit     error
		says     string
		silent   string
	}{
		{"clean", doctorFlags{}, nil, nil, "0 findings", "seen"},
		{"worth knowing", doctorFlags{}, []doctor.Finding{finding(doctor.Info)}, nil, "0 findings", "seen info"},
		{"info, with --all", doctorFlags{all: true}, []doctor.Finding{finding(doctor.Info)}, nil, "seen info", "ERROR"},
		{"wrong", doctorFlags{}, []doctor.Finding{finding(doctor.Error), finding(doctor.Info)}, exitError, "seen error", "seen info"},
		{
			"as JSON",
			doctorFlags{output: choice{value: "json"}},
			[]doctor.Finding{finding(doctor.Warning)},
			exitError, `"severity": "warning"`,
			"1 findings",
		},
		{
			"wrong, but not an error",
			doctorFlags{failOn: choice{value: "error"}},
			[]doctor.Finding{finding(doctor.Warning)},
			nil, "seen warning", "ERROR",
		},
		{
			"an error",
			doctorFlags{failOn: choice{value: "error"}},
			[]doctor.Finding{finding(doctor.Error), finding(doctor.Warning)},
			exitError, "seen error", "seen info",
		},
		{"manifests", doctorFlags{manifests: true}, []doctor.Finding{finding(doctor.Warning)}, exitError, "kind: warning", "why:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := tt.flags.print(doctor.Report{Findings: tt.findings}, &out, io.Discard)
			if !errors.Is(err, tt.exit) || !strings.Contains(out.String(), tt.says) || strings.Contains(out.String(), tt.silent) {
				t.Errorf("error %v, want %v; printed:\n%s", err, tt.exit, out.String())
			}
		})
	}
}

// A cluster that cannot be read is not a healthy one.
func TestDoctorThatCannotReadTheClusterExitsWith3(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\nclusters: [{name: x, cluster: {server: '" + down.URL + "'}}]\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
	_, stderr, err := command("", "doctor")
	if !errors.Is(err, exitIncomplete) || !strings.Contains(stderr, "reach the API server") {
		t.Errorf("error %v, stderr %q", err, stderr)
	}
}

func TestDoctorThatSkippedChecksExitsWith3(t *testing.T) {
	lacks := func(check string) doctor.NotChecked {
		return doctor.NotChecked{Check: check, Why: "EC2 instances could not be read: set --cluster-name", Cause: "set --cluster-name"}
	}
	report := doctor.Report{Checks: 3, NotChecked: []doctor.NotChecked{lacks("a"), lacks("b"), lacks("c")}}
	for _, tt := range []struct {
		name     string
		flags    doctorFlags
		findings []doctor.Finding
		exit     exitCode
		says     string
		lines    int
	}{
		{"a table", doctorFlags{}, nil, exitIncomplete, "not checked: 3 checks: set --cluster-name\n", 2},
		{"each by itself", doctorFlags{output: choice{value: "wide"}}, nil, exitIncomplete, "not checked  b", 4},
		{
			"findings are worse",
			doctorFlags{},
			[]doctor.Finding{{Check: "x", Severity: doctor.Error, Object: "X y"}},
			exitError,
			"not checked: 3 checks", 6,
		},
		{"manifests", doctorFlags{manifests: true}, nil, exitIncomplete, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, notes bytes.Buffer
			report := report
			report.Findings = tt.findings
			err := tt.flags.print(report, &out, &notes)
			if codeOf(err) != tt.exit || !strings.Contains(out.String(), tt.says) || strings.Count(out.String(), "\n") != tt.lines {
				t.Errorf("exit code %d, want %d; printed:\n%s", codeOf(err), tt.exit, out.String())
			}
			if tt.flags.manifests && !strings.Contains(notes.String(), "not checked: 3 checks: set --cluster-name") {
				t.Errorf("notes %q", notes.String())
			}
		})
	}
}

// One line names all that is missing, not only the first of it.
func TestDoctorNamesMissingSettingsInOneLine(t *testing.T) {
	t.Setenv("CLUSTER_NAME", "")
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "credentials"))
	t.Setenv("KUBECONFIG", apiServerOfNothing(t))
	stdout, stderr, err := command("", "doctor")
	if codeOf(err) != exitIncomplete {
		t.Fatalf("exit code %d, %v, stderr %q", codeOf(err), err, stderr)
	}
	var lines []string
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, "not checked: ") {
			lines = append(lines, line)
		}
	}
	const want = "checks: AWS cannot be read: set --cluster-name (or CLUSTER_NAME), --region (or AWS_REGION), AWS credentials"
	if len(lines) != 1 || !strings.Contains(lines[0], want) {
		t.Errorf("%d lines, want one with %q:\n%s", len(lines), want, stdout)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	if stdout, _, _ := command("", "doctor", "--region", "eu-west-1"); !strings.Contains(
		stdout,
		"AWS cannot be read: set --cluster-name (or CLUSTER_NAME)\n",
	) {
		t.Errorf("want only the name of the cluster missing:\n%s", stdout)
	}
}

// apiServerOfNothing is the kubeconfig of an API server that knows all kinds and has nothing but two namespaces.
func apiServerOfNothing(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		groupVersion := parts[1:]
		kinds := map[string]string{
			"nodes": "Node", "pods": "Pod", "persistentvolumes": "PersistentVolume", "persistentvolumeclaims": "PersistentVolumeClaim",
			"daemonsets":           "DaemonSet",
			"poddisruptionbudgets": "PodDisruptionBudget", "storageclasses": "StorageClass", "volumeattachments": "VolumeAttachment",
			"nodepools":  "NodePool",
			"nodeclaims": "NodeClaim", "ec2nodeclasses": "EC2NodeClass", "namespaces": "Namespace", "csinodes": "CSINode", "services": "Service",
			"replicationcontrollers": "ReplicationController", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet",
		}
		if kind := kinds[parts[len(parts)-1]]; kind != "" {
			version, items := strings.Join(groupVersion[:len(groupVersion)-1], "/"), ""
			if kind == "Namespace" {
				items = `{"metadata": {"name": "kube-system", "uid": "u"}}, {"metadata": {"name": "shop"}}`
			}
			_, _ = fmt.Fprintf(
				w,
				`{"apiVersion": %q, "kind": %q, "metadata": {"resourceVersion": "1"}, "items": [%s]}`,
				version,
				kind+"List",
				items,
			)
			return
		}
		var resources []string
		for plural, kind := range kinds {
			resources = append(resources, fmt.Sprintf(`{"name": %q, "kind": %q, "namespaced": false, "verbs": ["list"]}`, plural, kind))
		}
		_, _ = fmt.Fprintf(
			w,
			`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": %q, "resources": [%s]}`,
			strings.Join(groupVersion, "/"),
			strings.Join(resources, ", "),
		)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\nclusters: [{name: x, cluster: {server: '" + server.URL + "'}}]\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
