package controlplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/lab/controlplane"
	"github.com/dovetail-k8s/dovetail/lab/controlplane/pki"
	"github.com/dovetail-k8s/dovetail/lab/labtest"
)

// grace is how long a component may take to end before it is killed.
const grace = 10 * time.Second

// everyComponent is a control plane that runs.
const everyComponent = 4

// parentDir is the variable that makes this test binary the parent process of a cluster in that
// directory, for TestNoOrphans.
const parentDir = "CONTROLPLANE_TEST_PARENT_DIR"

// parent starts a cluster, states on its standard output how far it is, and waits to be killed.
func parent(dir string) int {
	_, err := controlplane.Start(context.Background(), controlplane.Config{
		Name:       "orphans",
		Dir:        dir,
		Executable: os.Getenv("DOVETAIL_LAB"),
		Progress:   func(component, state string) { fmt.Println(component, state) },
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("cluster healthy")
	select {}
}

func TestNoOrphans(t *testing.T) {
	for _, tt := range []struct {
		when    string // as the parent states it
		running int    // components then
	}{
		{"kube-apiserver starting", 2},
		{"cluster healthy", everyComponent},
	} {
		t.Run(tt.when, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "state")
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), parentDir+"="+dir, "DOVETAIL_LAB="+labtest.Binary(t))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var said []string
			for lines := bufio.NewScanner(out); lines.Scan(); {
				said = append(said, lines.Text())
				if lines.Text() == tt.when {
					break
				}
			}
			eventually(t, func(context.Context) error {
				if n := len(components(t, dir)); n != tt.running {
					return fmt.Errorf("%d components run, want %d; the parent said %q", n, tt.running, said)
				}
				return nil
			})
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed, as intended
			eventually(t, func(context.Context) error { return none(t, dir) })
		})
	}
}

// The kernel stops a component together with its parent only on Linux. Everywhere, a component finishes
// at the end of its standard input, which is what its parent holds open.
func TestComponentExitsWhenStandardInputCloses(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.NewAuthority("etcd", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"ca": ca.CA(), "cert": pair.Cert, "key": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), labtest.Binary(t), "component", "etcd", "--",
		"--data-dir="+filepath.Join(dir, "data"),
		"--listen-client-url=https://127.0.0.1:0", "--listen-client-http-url=https://localhost:0", // etcd refuses equal ones
		"--cert-file="+filepath.Join(dir, "cert"), "--key-file="+filepath.Join(dir, "key"),
		"--trusted-ca-file="+filepath.Join(dir, "ca"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(context.Context) error { // it works: it writes its data
		_, err := os.Stat(filepath.Join(dir, "data", "member", "snap", "db"))
		return err
	})
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // with a failure: it was not requested to end
	if err := none(t, dir); err != nil {
		t.Error(err)
	}
}

func none(t *testing.T, dir string) error {
	t.Helper()
	if left := components(t, dir); len(left) > 0 {
		return fmt.Errorf("still running: %v", left)
	}
	return nil
}

func TestTwoClustersSideBySide(t *testing.T) {
	first := sharedCluster(t)
	dir := filepath.Join(t.TempDir(), "state")
	second := startCluster(t, controlplane.Config{Name: "second", Dir: dir, ServiceCIDR: "172.20.0.0/16"})

	dns, err := clientOf(t, second.RESTConfig()).CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := "172.20.0.10"; dns.Spec.ClusterIP != want {
		t.Errorf("kube-dns is at %s, want %s", dns.Spec.ClusterIP, want)
	}
	crossed := first.RESTConfig()
	crossed.Host = second.Endpoint()
	if _, err := clientOf(t, crossed).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a client of the first cluster was served by the second")
	}
	if n := len(components(t, dir)); n != everyComponent {
		t.Errorf("%d components run, want %d", n, everyComponent)
	}

	if _, err := controlplane.Start(t.Context(), controlplane.Config{Name: "third", Dir: dir}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a cluster in the same directory: got %v, want that it exists", err)
	}

	watch, err := clientOf(t, second.RESTConfig()).CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	begin := time.Now()
	if err := second.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(begin); took >= grace {
		t.Errorf("stop took %v: with a watch open, a component did not end before it was killed", took)
	}
	if err := none(t, dir); err != nil {
		t.Errorf("after Stop: %v", err)
	}
	select {
	case <-second.Done():
	default:
		t.Error("Done is not closed after Stop")
	}
	if err := second.Err(); err != nil {
		t.Errorf("Err after Stop: %v", err)
	}
	if _, err := clientOf(t, first.RESTConfig()).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the first cluster, after the second was stopped: %v", err)
	}
}

func TestAPIServerCrash(t *testing.T) {
	c := startCluster(t, controlplane.Config{Name: "shaky", Dir: filepath.Join(t.TempDir(), "state")})
	client := clientOf(t, c.RESTConfig())
	if err := c.StartAPIServer(t.Context()); err == nil {
		t.Error("started a second API server")
	}
	for range 2 {
		if err := c.KillAPIServer(); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Discovery().ServerVersion(); err == nil {
			t.Error("something answers after the crash")
		}
		if err := c.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{}); err != nil {
			t.Errorf("after the crash: %v", err)
		}
	}
	if err := c.Err(); err != nil {
		t.Errorf("a crash that was asked for is reported: %v", err)
	}
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Errorf("stop after a crash: %v", err)
	}
	if err := c.StartAPIServer(t.Context()); err == nil {
		t.Error("started the API server of a cluster that was stopped")
	}
}

func TestClientsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	c := startCluster(t, controlplane.Config{Name: "kept", Dir: dir})
	c.RestartClientsOnExit()
	for _, component := range []string{"kube-scheduler", "kube-controller-manager"} {
		first := components(t, dir)[component]
		if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, func(context.Context) error {
			if now := components(t, dir)[component]; now == 0 || now == first {
				return fmt.Errorf("%s has not been started again", component)
			}
			return nil
		})
	}
	first := components(t, dir)["kube-controller-manager"]
	if err := c.RestartControllerManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := components(t, dir)["kube-controller-manager"]; now == 0 || now == first {
		t.Errorf("process %d of kube-controller-manager was asked to be renewed, %d runs", first, now)
	}
	if err := c.Err(); err != nil {
		t.Errorf("an end that was mended is reported: %v", err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := none(t, dir); err != nil {
		t.Error(err)
	}
}

func TestComponentDeathIsReported(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	c := startCluster(t, controlplane.Config{Name: "mortal", Dir: dir})
	if err := c.Err(); err != nil {
		t.Fatalf("while all is well: %v", err)
	}
	if err := syscall.Kill(components(t, dir)["kube-scheduler"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	select {
	case <-c.Done():
	case <-ctx.Done():
		t.Fatal("nothing was reported")
	}
	for _, want := range []string{`"mortal"`, "kube-scheduler", "killed", "Serving securely"} {
		if err := c.Err(); !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := none(t, dir); err != nil {
		t.Error(err)
	}
}

func TestStartFails(t *testing.T) {
	t.Run("component dies", func(t *testing.T) {
		exe := filepath.Join(t.TempDir(), "broken")
		if err := os.WriteFile(exe, []byte("#!/bin/sh\necho no space left >&2\nexit 3\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := controlplane.Start(
			t.Context(),
			controlplane.Config{Name: "broken", Dir: filepath.Join(t.TempDir(), "state"), Executable: exe},
		)
		for _, want := range []string{`"broken"`, "etcd", "exit status 3", "no space left"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %v", want, err)
			}
		}
	})
	t.Run("no such binary", func(t *testing.T) {
		_, err := controlplane.Start(
			t.Context(),
			controlplane.Config{Name: "none", Dir: filepath.Join(t.TempDir(), "state"), Executable: "/nowhere/dovetail-lab"},
		)
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := controlplane.Start(ctx, controlplane.Config{
			Name: "cancelled", Dir: dir, Executable: labtest.Binary(t),
			Progress: func(component, state string) {
				if component == "etcd" && state == "healthy" {
					cancel()
				}
			},
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that it was cancelled", err)
		}
		if err := none(t, dir); err != nil {
			t.Error(err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  controlplane.Config
		want string
	}{
		{"no name", controlplane.Config{Dir: "x"}, "Name"},
		{"no directory", controlplane.Config{Name: "x"}, "Dir"},
		{"no range", controlplane.Config{Name: "x", Dir: "x", ServiceCIDR: "10.100.0.0"}, "ServiceCIDR"},
		{"not the start of a range", controlplane.Config{Name: "x", Dir: "x", ServiceCIDR: "10.100.0.1/16"}, "ServiceCIDR"},
		{"IPv6", controlplane.Config{Name: "x", Dir: "x", ServiceCIDR: "fd00::/108"}, "ServiceCIDR"},
		{"no room for DNS", controlplane.Config{Name: "x", Dir: "x", ServiceCIDR: "10.100.0.0/29"}, "ServiceCIDR"},
		{"too large", controlplane.Config{Name: "x", Dir: "x", ServiceCIDR: "10.0.0.0/8"}, "ServiceCIDR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			_, err := controlplane.Start(t.Context(), tt.cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error about %s", err, tt.want)
			}
			if left, _ := filepath.Glob("*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestUnknownComponent(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), labtest.Binary(t), "component", "kubelet").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "kube-apiserver") {
		t.Errorf("got %v: %s; want an error that names the components", err, out)
	}
}

func jsonOf(t *testing.T, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
