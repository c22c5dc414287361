package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/deploy"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
	"github.com/dovetail-k8s/dovetail/lab/process"
)

// shadowAccount is the ServiceAccount in the RBAC manifests of shadow mode.
const shadowAccount = "dovetail-shadow"

// ShadowSession is the session name of the AWS calls of the cluster's shadow.
func (c *Cluster) ShadowSession() string { return c.ID + "-shadow" }

// Shadow is the product's controller in shadow mode, beside the cluster's autoscaler.
type Shadow struct {
	cluster     *Cluster
	kubeconfig  string
	credentials awsim.Credentials

	// What follows is of the running process.
	metrics string
	process *process.Process
}

// NewShadow prepares a shadow with the RBAC of the deployment manifests, and a role with the policy that `dovetail iam-policy
// --read-only` prints. It starts nothing.
func (c *Cluster) NewShadow(ctx context.Context) (*Shadow, error) {
	if c.world.cfg.Dovetail == "" {
		return nil, errNoBinary
	}
	if err := c.Apply(ctx, deploy.ShadowRBAC); err != nil {
		return nil, err
	}
	kubeconfig, err := c.accountKubeconfig(ctx, shadowAccount)
	if err != nil {
		return nil, err
	}
	credentials, err := c.readOnlyCredentials(ctx)
	if err != nil {
		return nil, err
	}
	s := &Shadow{cluster: c, kubeconfig: kubeconfig, credentials: credentials}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shadows = append(c.shadows, s)
	return s, nil
}

// readOnlyCredentials are those of a role that may only read.
func (c *Cluster) readOnlyCredentials(ctx context.Context) (awsim.Credentials, error) {
	account, name := c.world.AWS.IAM(), "ShadowRole-"+c.Name
	original, _ := account.Role(c.Role())
	if _, known := account.Role(name); !known {
		if _, err := account.CreateRole(iam.Role{Name: name, TrustPolicy: original.TrustPolicy}); err != nil {
			return awsim.Credentials{}, fmt.Errorf("role of the shadow of cluster %s: %w", c.ID, err)
		}
	}
	document, err := c.policy(ctx, "--read-only")
	if err != nil {
		return awsim.Credentials{}, err
	}
	if err := account.PutRolePolicy(name, "shadow", document); err != nil {
		return awsim.Credentials{}, fmt.Errorf("grant role %s its policy: %w", name, err)
	}
	return c.world.AWS.SessionCredentials(name, c.ShadowSession())
}

// Start starts the shadow and returns when it is ready.
func (s *Shadow) Start(ctx context.Context) error {
	c, cfg := s.cluster, s.cluster.world.cfg
	metrics, health, err := freePorts()
	if err != nil {
		return err
	}
	own := append(AWSEnvironment(c.world.AWSURL, cfg.Region, s.credentials), c.clusterVariables()...)
	own = append(own, c.controllerVariables(s.kubeconfig, metrics, health)...)
	p, err := process.Start(process.Command{
		Name: "dovetail", Path: cfg.Dovetail, Args: []string{"controller"}, Env: withHostEnvironment(append(own, Variable{"SHADOW", "true"})),
		Log: filepath.Join(c.LogDir(), "shadow.log"),
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	s.process, s.metrics = p, fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics)
	c.mu.Unlock()
	return c.controllerReady(ctx, p, fmt.Sprintf("http://127.0.0.1:%d/readyz", health))
}

// detach takes the process, if it runs.
func (s *Shadow) detach() *process.Process {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	p := s.process
	s.process = nil
	return p
}

// Kill kills the shadow with SIGKILL, if it runs.
func (s *Shadow) Kill() error {
	if p := s.detach(); p != nil {
		return p.Kill()
	}
	return nil
}

// Stop stops the shadow with SIGTERM, if it runs.
func (s *Shadow) Stop(ctx context.Context) error {
	if p := s.detach(); p != nil {
		return p.Stop(ctx)
	}
	return nil
}

// Metrics returns the shadow's /metrics.
func (s *Shadow) Metrics(ctx context.Context) (string, error) { return readMetrics(ctx, s.metrics) }

// Report runs `dovetail shadow report -o json` as the administrator, and decodes what it prints.
func (s *Shadow) Report(ctx context.Context, into any) error {
	out, err := s.command(ctx, "-o", "json")
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}

// Text runs `dovetail shadow report`.
func (s *Shadow) Text(ctx context.Context) (string, error) {
	out, err := s.command(ctx)
	return string(out), err
}

func (s *Shadow) command(ctx context.Context, args ...string) ([]byte, error) {
	args = append([]string{"shadow", "report", "--namespace", metav1.NamespaceSystem, "--kubeconfig", s.cluster.Kubeconfig()}, args...)
	cmd := exec.CommandContext(ctx, s.cluster.world.cfg.Dovetail, args...)
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, failed.Bytes())
	}
	return out.Bytes(), nil
}

// stopShadows stops all shadows with SIGTERM.
func (c *Cluster) stopShadows(ctx context.Context) error {
	c.mu.Lock()
	all := slices.Clone(c.shadows)
	c.mu.Unlock()
	var errs []error
	for _, s := range all {
		if p := s.detach(); p != nil {
			errs = append(errs, p.Stop(ctx))
		}
	}
	return errors.Join(errs...)
}
