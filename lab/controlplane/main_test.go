package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dovetail-k8s/dovetail/lab/controlplane"
	"github.com/dovetail-k8s/dovetail/lab/labtest"
)

// within is how long a test waits for what takes moments on an idle host.
const within = time.Minute

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentDir); dir != "" {
		os.Exit(parent(dir))
	}
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shared is the cluster of the tests that only talk to one; each in a namespace of its own.
var shared struct {
	sync.Mutex
	cluster *controlplane.Cluster
	dir     string
	err     error
}

func sharedCluster(t *testing.T) *controlplane.Cluster {
	t.Helper()
	exe := labtest.Binary(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil && shared.err == nil {
		if shared.dir, shared.err = os.MkdirTemp("", "controlplane-"); shared.err == nil {
			// Not the context of the test that comes first: the cluster outlives it.
			shared.cluster, shared.err = controlplane.Start(context.Background(), controlplane.Config{
				Name: "shared", Dir: shared.dir, Executable: exe,
			})
		}
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

func stopShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		return nil
	}
	if err := shared.cluster.Stop(context.Background()); err != nil {
		return err
	}
	return os.RemoveAll(shared.dir)
}

// startCluster starts a cluster for one test, and stops it when the test finishes.
func startCluster(t *testing.T, cfg controlplane.Config) *controlplane.Cluster {
	t.Helper()
	cfg.Executable = labtest.Binary(t)
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	c, err := controlplane.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func clientOf(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// as is a client of c with a certificate of the given user and groups.
func as(t *testing.T, c *controlplane.Cluster, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	cfg, err := c.ClientConfig(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return clientOf(t, cfg)
}

// eventually waits until check returns nil, and fails the test with its last error otherwise.
func eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, within, true,
		func(ctx context.Context) (bool, error) {
			last = check(ctx)
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("after %v: %v (%v)", within, last, err)
	}
}

// components are the processes that work in a state directory: process IDs by component.
func components(t *testing.T, dir string) map[string]int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-axww", "-o", "pid=,command=").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for line := range bytes.Lines(out) {
		// PID EXECUTABLE component NAME -- ARGS
		words := strings.Fields(string(line))
		if len(words) < 5 || words[2] != "component" || !strings.Contains(string(line), dir) {
			continue
		}
		pid, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		found[words[3]] = pid
	}
	return found
}
