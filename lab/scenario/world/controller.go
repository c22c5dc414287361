package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
	"github.com/dovetail-k8s/dovetail/lab/process"
)

const (
	// controllerAccount is the ServiceAccount in the RBAC manifests.
	controllerAccount = "dovetail"
	leaderLease       = "karpenter-leader-election"
	// tokenLifetime outlasts any world.
	tokenLifetime = 365 * 24 * time.Hour
)

var errNoBinary = errors.New("start the controller: no dovetail binary is configured")

// ErrNeverStarted means that the cluster's controller has not been started yet.
var ErrNeverStarted = errors.New("the controller was never started")

// Variable is an environment variable.
type Variable struct{ Name, Value string }

// AWSEnvironment is how an AWS client finds an account and who it is there.
func AWSEnvironment(url, region string, c awsim.Credentials) []Variable {
	out := []Variable{
		{"AWS_ENDPOINT_URL", url},
		{"AWS_REGION", region},
		{"AWS_DEFAULT_REGION", region}, // what older clients read
		{"AWS_ACCESS_KEY_ID", c.AccessKeyID},
		{"AWS_SECRET_ACCESS_KEY", c.SecretAccessKey},
	}
	if c.SessionToken != "" {
		out = append(out, Variable{"AWS_SESSION_TOKEN", c.SessionToken})
	}
	return out
}

// Environment returns the environment of a node autoscaler, without KUBECONFIG: the cluster's settings, and the AWS
// endpoint with the credentials of the autoscaler's role.
func (c *Cluster) Environment() ([]Variable, error) {
	credentials, err := c.Credentials()
	if err != nil {
		return nil, err
	}
	return append(AWSEnvironment(c.world.AWSURL, c.world.cfg.Region, credentials), c.clusterVariables()...), nil
}

// clusterVariables is what a node autoscaler has to know of the cluster.
func (c *Cluster) clusterVariables() []Variable {
	out := []Variable{{"CLUSTER_NAME", c.Name}, {"CLUSTER_ENDPOINT", c.Endpoint()}}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue != "" {
		out = append(out, Variable{"INTERRUPTION_QUEUE", c.queue})
	}
	return out
}

// AdministratorEnvironment is KUBECONFIG and the AWS environment of the account's administrator, with the names by
// which the cluster is known: what a person needs who works with both.
func (c *Cluster) AdministratorEnvironment() []Variable {
	administrator := awsim.Credentials{AccessKeyID: credential.AdminAccessKeyID, SecretAccessKey: "test"}
	out := append([]Variable{{"KUBECONFIG", c.Kubeconfig()}}, AWSEnvironment(c.world.AWSURL, c.world.cfg.Region, administrator)...)
	return append(out, c.clusterVariables()...)
}

// EnableInterruptionQueue has EventBridge send what happens to the account's instances to the cluster's interruption
// queue, and the controller read it from its next start on.
func (c *Cluster) EnableInterruptionQueue() error {
	if err := c.world.AWS.SendEventsTo(c.Name); err != nil {
		return fmt.Errorf("interruption queue of cluster %s: %w", c.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = c.Name
	return nil
}

// Credentials are new ones of the role of the cluster's autoscaler, in the session of the cluster's ID.
func (c *Cluster) Credentials() (awsim.Credentials, error) {
	credentials, err := c.world.AWS.SessionCredentials(c.Role(), c.ID)
	if err != nil {
		return awsim.Credentials{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.describeDenied {
		c.world.describeDenied.Store(credentials.AccessKeyID, true)
	}
	return credentials, nil
}

// DenyDescribeCluster denies eks:DescribeCluster to the cluster's autoscaler, from its next start on.
func (c *Cluster) DenyDescribeCluster() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.describeDenied = true
}

// SetFeatureGates sets the feature gates of the cluster's autoscaler, such as "StaticCapacity=true", from its next
// start on.
func (c *Cluster) SetFeatureGates(gates string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gates = gates
}

// SetEnv sets a setting of the cluster's autoscaler by the name of its environment variable, such as STARTUP_TAINT_GRACE_PERIOD,
// from its next start on.
func (c *Cluster) SetEnv(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.environment = append(c.environment, Variable{name, value})
}

// SetLeaderElectionNamespace sets where the cluster's autoscaler has its leader lease, and a shadow its report, from the next start on.
// The roles of the deployment manifests allow only kube-system.
func (c *Cluster) SetLeaderElectionNamespace(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namespace = name
}

// RunController runs the product's controller until it exits, and returns the last lines of its log. It does not count
// as the cluster's controller.
func (c *Cluster) RunController(ctx context.Context) (string, error) {
	if c.world.cfg.Dovetail == "" {
		return "", errNoBinary
	}
	env, _, err := c.controllerEnvironment(ctx)
	if err != nil {
		return "", err
	}
	p, err := process.Start(process.Command{
		Name: "dovetail", Path: c.world.cfg.Dovetail, Args: []string{"controller"}, Env: env, Log: filepath.Join(c.LogDir(), "exited.log"),
	})
	if err != nil {
		return "", err
	}
	select {
	case <-p.Done():
		return p.LogTail(), nil
	case <-ctx.Done():
		return "", errors.Join(fmt.Errorf("the controller has not exited: %w", context.Cause(ctx)), p.Kill())
	}
}

// Metrics returns the controller's /metrics.
func (c *Cluster) Metrics(ctx context.Context) (string, error) {
	url, err := c.MetricsURL()
	if err != nil {
		return "", err
	}
	return readMetrics(ctx, url)
}

// Readiness is what the running controller's readiness probe lists.
func (c *Cluster) Readiness(ctx context.Context) (string, error) {
	c.mu.Lock()
	url := c.health
	c.mu.Unlock()
	if url == "" {
		return "", ErrNeverStarted
	}
	return readMetrics(ctx, url+"?verbose")
}

func readMetrics(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("read the controller's metrics: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// MetricsURL is where the controller shows its metrics, or ErrNeverStarted.
func (c *Cluster) MetricsURL() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.metrics == "" {
		return "", ErrNeverStarted
	}
	return c.metrics, nil
}

// ControllerLog is the path of the controller's log, over all restarts.
func (c *Cluster) ControllerLog() string { return filepath.Join(c.LogDir(), "controller.log") }

// Recording is the path of the controller's recording of decisions, over all restarts.
func (c *Cluster) Recording() string { return filepath.Join(c.LogDir(), "decisions.rec") }

// Replay has the product's engine decide again what the controller decided, and returns an error if it decides otherwise. The
// summary has the number of decisions. A controller that was never started has none.
func (c *Cluster) Replay(ctx context.Context) (summary string, err error) {
	if _, err := os.Stat(c.Recording()); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	out, err := exec.CommandContext(ctx, c.world.cfg.Dovetail, "replay", c.Recording(), "--all", "--diff").CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err == nil {
		err = c.checkDecisions(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("replay %s: %w\n%s", c.Recording(), err, strings.Join(lines[max(0, len(lines)-replayLines):], "\n"))
	}
	return lines[len(lines)-1], nil
}

// checkDecisions returns an error if a NodeClaim names a decision that is not recorded, or a frame of the recording cannot be read.
func (c *Cluster) checkDecisions(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, c.world.cfg.Dovetail, "recording", "list", "-f", c.Recording(), "-o", "json").Output()
	if err != nil {
		return fmt.Errorf("list the decisions: %w", err)
	}
	var list struct {
		Decisions        []struct{ ID string }
		UnreadableFrames int
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return fmt.Errorf("list the decisions: %w", err)
	}
	if list.UnreadableFrames > 0 {
		return fmt.Errorf("%d frames of the recording cannot be read", list.UnreadableFrames)
	}
	recorded := map[string]bool{}
	for _, d := range list.Decisions {
		recorded[d.ID] = true
	}
	for _, claim := range c.History.Claims() {
		for _, id := range claim.Decisions {
			if !recorded[id] {
				return fmt.Errorf("decision %s of node claim %s is not recorded", id, claim.Name)
			}
		}
	}
	return nil
}

// replayLines is how many lines of a replay that differs an error shows.
const replayLines = 20

// StartController starts the product's controller and returns when it is ready. It runs as its ServiceAccount, with the
// RBAC of the deployment manifests and nothing more.
func (c *Cluster) StartController(ctx context.Context) error {
	c.progress("controller", false)
	p, health, err := c.launchController(ctx)
	if err != nil {
		return err
	}
	if err := c.controllerReady(ctx, p, health); err != nil {
		return err
	}
	c.progress("controller", true)
	return nil
}

// LaunchController starts the product's controller and does not wait until it is ready.
func (c *Cluster) LaunchController(ctx context.Context) error {
	_, _, err := c.launchController(ctx)
	return err
}

func (c *Cluster) launchController(ctx context.Context) (*process.Process, string, error) {
	if c.world.cfg.Dovetail == "" {
		return nil, "", errNoBinary
	}
	if err := c.releaseLease(ctx); err != nil {
		return nil, "", err
	}
	env, health, err := c.controllerEnvironment(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("prepare the controller: %w", err)
	}
	p, err := process.Start(process.Command{
		Name: "dovetail", Path: c.world.cfg.Dovetail, Args: []string{"controller"}, Env: env, Log: c.ControllerLog(),
	})
	if err != nil {
		return nil, "", err
	}
	c.mu.Lock()
	c.controller, c.health = p, health
	c.started++
	c.startedAt = time.Now()
	c.mu.Unlock()
	return p, health, nil
}

// RestartControllerOnExit restarts a controller that exits, as kubelet does. Otherwise its exit is a failure of the
// world.
func (c *Cluster) RestartControllerOnExit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restartOnExit = true
}

// AwaitController waits until the running controller is ready.
func (c *Cluster) AwaitController(ctx context.Context) error {
	return Until(ctx, func() error {
		c.mu.Lock()
		p, url := c.controller, c.health
		c.mu.Unlock()
		if p == nil {
			return errors.New("the controller does not run")
		}
		return ready(ctx, url)
	})
}

// controllerEnvironment is the whole environment of the controller, and the URL that reports its health.
func (c *Cluster) controllerEnvironment(ctx context.Context) ([]string, string, error) {
	kubeconfig, err := c.accountKubeconfig(ctx, controllerAccount)
	if err != nil {
		return nil, "", err
	}
	metrics, health, err := freePorts()
	if err != nil {
		return nil, "", err
	}
	own, err := c.Environment()
	if err != nil {
		return nil, "", err
	}
	c.mu.Lock()
	c.metrics = fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics)
	gates, settings := c.gates, slices.Clone(c.environment)
	c.mu.Unlock()
	own = append(own, c.controllerVariables(kubeconfig, metrics, health)...)
	own = append(own, Variable{"FEATURE_GATES", gates}, Variable{"RECORDER_PATH", c.Recording()},
		Variable{"DOVETAIL_PACE", strconv.Itoa(max(1, c.world.cfg.Pace))})
	return withHostEnvironment(append(own, settings...)), fmt.Sprintf("http://127.0.0.1:%d/readyz", health), nil
}

// controllerVariables are the settings of a process of the product's controller: how it reaches the cluster, and where it listens.
func (c *Cluster) controllerVariables(kubeconfig string, metrics, health int) []Variable {
	c.mu.Lock()
	namespace := c.namespace
	c.mu.Unlock()
	return []Variable{
		{"KUBECONFIG", kubeconfig},
		{"METRICS_PORT", strconv.Itoa(metrics)},
		{"HEALTH_PROBE_PORT", strconv.Itoa(health)},
		{"BIND_ADDRESS", "127.0.0.1"},
		{"LEADER_ELECTION_NAMESPACE", namespace},
		// The operator's own AWS configuration has no business in the lab.
		{"AWS_CONFIG_FILE", os.DevNull},
		{"AWS_SHARED_CREDENTIALS_FILE", os.DevNull},
	}
}

// withHostEnvironment is the environment of this process with own, and nothing else of AWS.
func withHostEnvironment(own []Variable) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") })
	for _, v := range own {
		env = append(env, v.Name+"="+v.Value)
	}
	return env
}

// accountKubeconfig writes a kubeconfig with a token of a ServiceAccount of the product.
func (c *Cluster) accountKubeconfig(ctx context.Context, account string) (string, error) {
	seconds := int64(tokenLifetime.Seconds())
	token, err := c.clientset.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of ServiceAccount %s: %w", account, err)
	}
	path := filepath.Join(c.dir, account+".kubeconfig")
	return path, c.controlPlane.WriteKubeconfig(path, &rest.Config{
		Host: c.controllerEndpoint(), BearerToken: token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.controlPlane.CA()},
	})
}

func (c *Cluster) controllerReady(ctx context.Context, p *process.Process, url string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.Done():
			cancel(p.ExitError())
		case <-ctx.Done():
		}
	}()
	return Until(ctx, func() error { return ready(ctx, url) })
}

// ready reads the controller's readiness endpoint.
func ready(ctx context.Context, url string) error {
	prober := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := prober.Do(request)
	if err != nil {
		return fmt.Errorf("the controller is not ready: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the controller is not ready: %s answers %s", url, resp.Status)
	}
	return nil
}

// StopController stops the controller with SIGTERM, if it runs.
func (c *Cluster) StopController(ctx context.Context) error {
	if p := c.detachController(); p != nil {
		return p.Stop(ctx)
	}
	return nil
}

// KillController kills the controller with SIGKILL, if it runs.
func (c *Cluster) KillController() error {
	if p := c.detachController(); p != nil {
		return p.Kill()
	}
	return nil
}

// CrashController stops the controller by SIGKILL, if it runs, as if by itself: see RestartControllerOnExit.
func (c *Cluster) CrashController() error {
	c.mu.Lock()
	p := c.controller
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Kill()
}

func (c *Cluster) detachController() *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.controller
	c.controller = nil
	return p
}

// ControllerStarts is how often the controller was started.
func (c *Cluster) ControllerStarts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started
}

// releaseLease deletes the lease of a killed controller, which otherwise would block the next one until it expires.
func (c *Cluster) releaseLease(ctx context.Context) error {
	c.mu.Lock()
	namespace := c.namespace
	c.mu.Unlock()
	if namespace != metav1.NamespaceSystem { // it may be another controller's
		return nil
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaderLease}}
	if err := client.IgnoreNotFound(c.Client.Delete(ctx, lease)); err != nil {
		return fmt.Errorf("release the leader's lease: %w", err)
	}
	return nil
}

// freePorts are two TCP ports that are free now.
func freePorts() (first, second int, err error) {
	var ports [2]int
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, 0, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() // not before both are known: else they may be one
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports[0], ports[1], nil
}
