// Package controlplane runs the control plane of a Kubernetes cluster on this host: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler, each in a process of its own, with
// TLS between all of them, RBAC, and the Node authorizer. Everything listens on the loopback
// interface only, on ports of its own, so that several clusters run side by side.
//
// The components are not linked into this package. It executes a binary that holds them, once for
// each (see the package component), and ties their lives to its own process: when that one exits,
// even by SIGKILL, they do.
package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dovetail-k8s/dovetail/lab/controlplane/pki"
	"github.com/dovetail-k8s/dovetail/lab/process"
)

const (
	// version is the minor version of Kubernetes that the components are.
	version = "1.37"
	// startTimeout is how long a start may take on a busy host. It usually takes a few seconds.
	startTimeout = 2 * time.Minute
	// kubeconfigName names the administrator's kubeconfig file in the state directory.
	kubeconfigName = "admin"
)

// Cluster is a control plane that runs.
type Cluster struct {
	cfg      Config
	state    state
	ports    map[string]*portReservation // by component; etcd has a second one, for its health
	endpoint string
	ca       *pki.Authority
	admin    *rest.Config
	client   kubernetes.Interface

	restartMu sync.Mutex // held while a component that ran is started again

	mu             sync.Mutex
	processes      map[string]*process.Process // by component; nil once stopped
	stopped        map[string]bool             // components that are not to run for a while
	restartClients bool                        // scheduler and controller manager are started again when they end
	stopping       bool
	err            error
	done           chan struct{}
	doneOnce       sync.Once
}

// Start starts a cluster and returns when it is healthy: the API server is ready, pods are
// accepted, and the scheduler has seen the cluster. If ctx is done before, or a component fails,
// nothing is left running, and the error holds the last lines of that component's log. Once
// started, a cluster does not depend on ctx; it has to be stopped.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		cfg:   cfg,
		state: state{dir: cfg.Dir},
		ports: map[string]*portReservation{},
		done:  make(chan struct{}),

		processes: map[string]*process.Process{}, stopped: map[string]bool{},
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster %q: %w", cfg.Name, err), c.Stop(ctx))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return c.boot(ctx)
}

// prepare writes everything that the components read.
func (c *Cluster) prepare() error {
	if err := c.state.create(); err != nil {
		return err
	}
	for _, component := range []string{etcd, etcdHealth, apiServer, controllerManager, scheduler} {
		port, err := reservePort()
		if err != nil {
			return err
		}
		c.ports[component] = port
	}
	c.endpoint = c.ports[apiServer].url()
	var err error
	if c.ca, err = c.state.credentials(c.cfg.ServiceCIDR); err != nil {
		return err
	}
	if c.admin, err = c.ClientConfig("kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.admin); err != nil {
		return err
	}
	if err := c.WriteKubeconfig(c.state.kubeconfig(kubeconfigName), c.admin); err != nil {
		return err
	}
	for _, component := range []string{controllerManager, scheduler} {
		cfg, err := c.ClientConfig("system:" + component)
		if err != nil {
			return err
		}
		if err := c.WriteKubeconfig(c.state.kubeconfig(component), cfg); err != nil {
			return err
		}
	}
	if c.cfg.TokenWebhook != "" {
		if err := c.state.tokenWebhook(c.cfg.TokenWebhook, c.cfg.TokenWebhookCA); err != nil {
			return err
		}
	}
	return c.writeSchedulerConfig()
}

// boot starts the components, those that do not need one another at the same time.
func (c *Cluster) boot(ctx context.Context) error {
	etcdHTTP, err := c.state.etcdHTTP()
	if err != nil {
		return err
	}
	http := anonymousHTTP(c.ca)
	ready := func(component, path string) probe { return respondsOK(http, c.ports[component].url()+path) }

	if err := c.run(ctx, etcd, c.etcdArgs(), respondsOK(etcdHTTP, c.ports[etcdHealth].url()+"/health")); err != nil {
		return err
	}
	if err := c.runAPIServer(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.createDNS(ctx) })
	group.Go(func() error {
		if err := c.cfg.BeforeControllers(ctx, c.RESTConfig()); err != nil {
			return err
		}
		return c.run(ctx, controllerManager, c.controllerManagerArgs(), c.podsAccepted)
	})
	group.Go(func() error { return c.run(ctx, scheduler, c.schedulerArgs(), ready(scheduler, "/readyz")) })
	return group.Wait()
}

func (c *Cluster) runAPIServer(ctx context.Context) error {
	return c.run(ctx, apiServer, c.apiServerArgs(), respondsOK(anonymousHTTP(c.ca), c.ports[apiServer].url()+"/readyz"))
}

// KillAPIServer stops the API server at once, as a crash does. All else keeps running, and finds nobody at the endpoint
// until StartAPIServer.
func (c *Cluster) KillAPIServer() error {
	c.mu.Lock()
	p := c.processes[apiServer]
	if p != nil {
		c.stopped[apiServer] = true
	}
	c.mu.Unlock()
	if p == nil {
		return fmt.Errorf("cluster %q does not run", c.cfg.Name)
	}
	return p.Kill()
}

// StartAPIServer starts the API server again after KillAPIServer, and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	again := c.stopped[apiServer] && !c.stopping
	c.mu.Unlock()
	if !again {
		return fmt.Errorf("the API server of cluster %q was not killed", c.cfg.Name)
	}
	return c.runAPIServer(ctx)
}

// RestartControllerManager stops the controller manager and starts it again, and with that all that it remembers.
func (c *Cluster) RestartControllerManager(ctx context.Context) error {
	c.restartMu.Lock()
	defer c.restartMu.Unlock()
	c.mu.Lock()
	p := c.processes[controllerManager]
	if p != nil {
		c.stopped[controllerManager] = true
	}
	c.mu.Unlock()
	if p == nil {
		return fmt.Errorf("cluster %q does not run", c.cfg.Name)
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return c.run(ctx, controllerManager, c.controllerManagerArgs(), c.podsAccepted)
}

// run starts a component and waits until it is healthy.
func (c *Cluster) run(ctx context.Context, component string, args []string, healthy probe) error {
	begin := time.Now()
	c.cfg.Progress(component, "starting")
	p, err := process.Start(process.Command{
		Name: component, Path: c.cfg.Executable, Log: c.state.log(component),
		Args: append([]string{"component", component, "--"}, args...),
		Env:  environment(c.cfg.GCPercent),
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.stopping {
		c.mu.Unlock()
		return errors.Join(fmt.Errorf("cluster %q was stopped", c.cfg.Name), p.Kill())
	}
	c.processes[component], c.stopped[component] = p, false
	c.mu.Unlock()
	go c.watchProcess(component, p)
	if err := awaitHealthy(ctx, component, p, healthy); err != nil {
		return err
	}
	c.cfg.Log.Info("component is healthy", "cluster", c.cfg.Name, "component", component, "took", time.Since(begin))
	c.cfg.Progress(component, "healthy")
	return nil
}

// environment is the components' environment.
func environment(gcPercent int) []string {
	env := os.Environ()
	if _, set := os.LookupEnv("GOGC"); !set {
		env = append(env, fmt.Sprintf("GOGC=%d", gcPercent))
	}
	return env
}

// watchProcess reports an unexpected exit of a process, or restarts it.
func (c *Cluster) watchProcess(component string, p *process.Process) {
	<-p.Done()
	c.mu.Lock()
	unexpected := !c.stopping && c.err == nil && !c.stopped[component] && c.processes[component] == p
	if unexpected && c.restartClients && (component == scheduler || component == controllerManager) {
		c.mu.Unlock()
		c.restart(component, p)
		return
	}
	if unexpected {
		c.err = fmt.Errorf("cluster %q: %w", c.cfg.Name, p.ExitError())
	}
	c.mu.Unlock()
	if unexpected {
		c.cfg.Log.Error("component exited", "cluster", c.cfg.Name, "component", component, "error", c.Err())
		c.doneOnce.Do(func() { close(c.done) })
	}
}

// RestartClientsOnExit restarts the scheduler and the controller manager whenever they exit, as kubelet restarts static
// pods. Both sometimes exit when the API server restarts with a state older than their caches.
func (c *Cluster) RestartClientsOnExit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restartClients = true
}

// restart restarts a component that exited unexpectedly.
func (c *Cluster) restart(component string, p *process.Process) {
	c.cfg.Log.Warn("component exited and restarts", "cluster", c.cfg.Name, "component", component, "error", p.ExitError())
	c.restartMu.Lock()
	defer c.restartMu.Unlock()
	c.mu.Lock()
	renewed := c.processes[component] != p || c.stopped[component]
	c.mu.Unlock()
	if renewed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	args, ready := c.schedulerArgs, respondsOK(anonymousHTTP(c.ca), c.ports[scheduler].url()+"/readyz")
	if component == controllerManager {
		args, ready = c.controllerManagerArgs, c.podsAccepted
	}
	if err := c.run(ctx, component, args(), ready); err != nil {
		c.mu.Lock()
		stopping := c.stopping
		if c.err == nil && !stopping {
			c.err = fmt.Errorf("cluster %q: restart %s: %w", c.cfg.Name, component, err)
		}
		c.mu.Unlock()
		if !stopping {
			c.doneOnce.Do(func() { close(c.done) })
		}
	}
}

// Done is closed when the cluster no longer works: a component exited unexpectedly (see Err) or
// the cluster was stopped.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// Err names the component that exited unexpectedly, with the last lines of its log. It is nil as long
// as all of them run, and after a Stop. The others keep running until then.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Stop stops the components in the reverse order of their dependencies. One that does not exit within ten
// seconds, or by the end of ctx, is killed: when Stop returns, none is left. It may be called
// again.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.stopping = true
	processes, ports := c.processes, c.ports
	c.processes, c.ports = nil, nil
	c.mu.Unlock()
	defer c.doneOnce.Do(func() { close(c.done) })

	var errs []error
	for _, together := range [][]string{{scheduler, controllerManager}, {apiServer}, {etcd}} {
		var group errgroup.Group
		for _, component := range together {
			if p := processes[component]; p != nil {
				group.Go(func() error { return p.Stop(ctx) })
			}
		}
		errs = append(errs, group.Wait())
	}
	for _, port := range ports {
		errs = append(errs, port.release())
	}
	return errors.Join(errs...)
}

// RESTConfig is a client of the group system:masters, without a limit of its own on the rate of
// requests. The caller may change the copy it gets.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.admin) }

// Kubeconfig is the path of a kubeconfig file that holds RESTConfig.
func (c *Cluster) Kubeconfig() string { return c.state.kubeconfig(kubeconfigName) }

// Endpoint is the URL of the API server.
func (c *Cluster) Endpoint() string { return c.endpoint }

// CA is the authority of the API server's certificate, as PEM.
func (c *Cluster) CA() []byte { return c.ca.CA() }

// ServingCertificate is one for the loopback interface by the cluster's authority, for what stands before the API server.
func (c *Cluster) ServingCertificate() (tls.Certificate, error) {
	pair, err := c.ca.Server("localhost", "127.0.0.1")
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pair.Cert, pair.Key)
}

// Version is the minor version of Kubernetes, as "1.37".
func (c *Cluster) Version() string { return version }

// PIDs are the process IDs of the components that run, by name.
func (c *Cluster) PIDs() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for component, p := range c.processes {
		if p != nil {
			out[component] = p.PID()
		}
	}
	return out
}

// ClientConfig makes a client that the API server knows as the given user with the given groups,
// by a certificate made for it.
func (c *Cluster) ClientConfig(user string, groups ...string) (*rest.Config, error) {
	pair, err := c.ca.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: c.endpoint,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.ca.CA(),
			CertData: pair.Cert,
			KeyData:  pair.Key,
		},
		QPS: -1, // fairness among clients is the server's part
	}, nil
}
