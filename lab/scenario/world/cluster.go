package world

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/deploy"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/controlplane"
	"github.com/dovetail-k8s/dovetail/lab/node/authn"
	"github.com/dovetail-k8s/dovetail/lab/node/ccm"
	"github.com/dovetail-k8s/dovetail/lab/node/ebs"
	"github.com/dovetail-k8s/dovetail/lab/node/heartbeat"
	"github.com/dovetail-k8s/dovetail/lab/process"
)

// cloudControllerQPS is how many calls the cloud controller manager makes in a second. A node takes three.
const cloudControllerQPS = 2000

// Cluster is an EKS cluster of a world.
type Cluster struct {
	// Name is the cluster's name in EKS and in the settings of its autoscaler. ID is unique even if clusters share a
	// name; it is the session name of the autoscaler's AWS calls.
	Name, ID string
	// Client talks to the API server as its administrator.
	Client client.Client
	// Reader reads from a watch cache: pods, nodes, NodeClaims, NodePools, EC2NodeClasses, events. It
	// lags behind the API server a little, and costs no request.
	Reader client.Reader
	// History records pods and NodeClaims since the cluster started.
	History *History

	world           *World
	dir             string
	controlPlane    *controlplane.Cluster
	endpoint        *authn.Endpoint
	served          bool // the endpoint finishes with the world
	clientset       kubernetes.Interface
	cloudController *cloudController
	stopStorage     context.CancelFunc

	mu             sync.Mutex
	controller     *process.Process // nil while it is not to run
	health         string           // URL that reports its readiness
	started        int              // how often the controller was started
	startedAt      time.Time        // when it was started last
	exits          ControllerExits  // of controllers that nobody stopped
	metrics        string           // where the controller shows its metrics
	console        string           // where the controller serves the console; empty if it does not
	describeDenied bool             // the controller may not describe clusters
	gates          string           // feature gates of the controller
	environment    []Variable       // other settings of the controller
	namespace      string           // of the leader lease and the shadow's report
	queue          string           // interruption queue that gets events; empty if the cluster has none
	restartOnExit  bool             // the controller is started again when it finishes
	shadows        []*Shadow        // prepared beside the controller
	front          string           // URL of what stands between the controller and the API server; empty for none
}

// start boots the cluster. What works beside the control plane does so until working finishes.
func (c *Cluster) start(ctx, working context.Context) error {
	var err error
	if c.endpoint, err = authn.Listen(); err != nil {
		return err
	}
	c.controlPlane, err = controlplane.Start(ctx, controlplane.Config{
		Name: c.Name, Dir: c.dir, Executable: c.world.cfg.Executable, Log: c.world.log,
		TokenWebhook: c.endpoint.URL(), TokenWebhookCA: c.endpoint.CA(),
		GCPercent: c.world.cfg.GCPercent, FeatureGates: c.world.cfg.FeatureGates, RuntimeConfig: c.world.cfg.RuntimeConfig,
		BeforeControllers: func(ctx context.Context, admin *rest.Config) error {
			if err := c.connect(admin); err != nil {
				return err
			}
			return c.install(ctx)
		},
		Progress: func(component, state string) { c.progress(component, state == "healthy") },
	})
	if err != nil {
		return err
	}
	err = c.world.AWS.SeedCluster(awsim.ClusterSpec{
		Name: c.Name, Version: c.controlPlane.Version(), Endpoint: c.controlPlane.Endpoint(), CA: c.controlPlane.CA(),
		OIDCIssuer: controlplane.Issuer,
		TakeOver:   c.ID == clusterName(0, c.world.cfg.Clusters), // clusters that share a name boot at the same time
	})
	if err != nil {
		return err
	}
	if c.world.cfg.LeasesTogether {
		if err := c.renewLeases(working); err != nil {
			return err
		}
	}
	group, together := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startEKS(together, working) })
	group.Go(func() error { return c.Apply(together, deploy.RBAC) })
	group.Go(func() error { return c.grant(together) })
	if err := group.Wait(); err != nil {
		return err
	}
	if c.world.cfg.Unwatched {
		return nil
	}
	return c.watch(ctx, working, func(client.Object, bool) {})
}

// renewLeases renews the leases of nodes together until working finishes.
func (c *Cluster) renewLeases(working context.Context) error {
	etcd, err := c.Store()
	if err != nil {
		return err
	}
	leases := heartbeat.New(etcd, c.world.log)
	c.world.simulator.RenewTogether(c.controlPlane.Endpoint(), leases)
	c.world.background.Go(func() error {
		leases.Run(working)
		return etcd.Close()
	})
	return nil
}

func (c *Cluster) progress(part string, healthy bool) {
	c.world.cfg.Progress(Progress{Cluster: c.ID, Part: part, Healthy: healthy})
}

// connect makes the clients.
func (c *Cluster) connect(cfg *rest.Config) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	if c.Client, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	c.clientset, err = kubernetes.NewForConfig(withProtobuf(cfg))
	return err
}

// withProtobuf is a configuration for clients of Kubernetes' own kinds: less CPU than JSON on both sides.
func withProtobuf(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return cfg
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	var errs []error
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, karpv1.AddToScheme, awsv1.AddToScheme, v1alpha1.AddToScheme,
		bufferv1.AddToScheme,
	} {
		errs = append(errs, add(scheme))
	}
	return scheme, errors.Join(errs...)
}

// startEKS runs what EKS runs beside a control plane: the authenticator, the cloud controller manager, and the
// controller of the EBS CSI driver. Its daemons are a workload of the cluster.
func (c *Cluster) startEKS(ctx, working context.Context) error {
	c.progress("EKS", false)
	if err := authn.InstallRBAC(ctx, c.clientset); err != nil {
		return err
	}
	w := c.world
	authenticator, err := authn.New(authn.Config{
		Cluster: c.Name, STSEndpoint: w.AWSURL, EKS: w.EKS(), EC2: w.EC2(), Log: w.log, Now: w.AWS.Now,
		ConfigMaps: c.clientset.CoreV1().ConfigMaps("kube-system"),
	})
	if err != nil {
		return err
	}
	c.served = true
	w.background.Go(func() error { return c.endpoint.Serve(working, authenticator) })

	user, err := c.controlPlane.ClientConfig(authn.CloudControllerManager)
	if err != nil {
		return err
	}
	// The limits of client-go would have it initialize two nodes a second; the real one is given higher ones, too.
	user.QPS, user.Burst = cloudControllerQPS, 2*cloudControllerQPS
	manager, err := kubernetes.NewForConfig(withProtobuf(user))
	if err != nil {
		return err
	}
	c.cloudController = w.newCloudController(working, ccm.Config{Client: manager, EC2: w.EC2(), Region: w.cfg.Region, Log: w.log})
	c.StartCloudController()
	storage := ebs.New(ebs.Config{Client: c.clientset, EC2: w.EC2(), Zones: w.zones(), Log: w.log})
	attaching, stop := context.WithCancel(working)
	c.stopStorage = stop
	w.background.Go(func() error { return storage.Run(attaching) })
	c.progress("EKS", true)
	return nil
}

// Watch begins to follow the cluster of an unwatched world, and returns when Reader knows all that there is. seen is
// called as by History.Watch, with what there is, too.
func (c *Cluster) Watch(ctx context.Context, seen func(o client.Object, gone bool)) error {
	return c.watch(ctx, c.world.working, seen)
}

func (c *Cluster) watch(ctx, working context.Context, seen func(o client.Object, gone bool)) error {
	watched, err := cache.New(c.controlPlane.RESTConfig(), cache.Options{
		Scheme: c.Client.Scheme(), Mapper: c.Client.RESTMapper(), DefaultTransform: c.keep(),
	})
	if err != nil {
		return fmt.Errorf("watch the cluster: %w", err)
	}
	c.world.background.Go(func() error { return watched.Start(working) })
	c.History = newHistory(func(version string) ([]karpv1.NodeClaim, error) { return c.claimsAsOf(working, version) })
	c.History.Watch(seen)
	for _, kind := range []client.Object{
		&corev1.Pod{}, &corev1.Node{}, &corev1.Event{}, &karpv1.NodeClaim{}, &karpv1.NodePool{}, &awsv1.EC2NodeClass{},
	} {
		informer, err := watched.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(c.History.handler()); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	c.Reader = watched
	return nil
}

// keep is what Reader keeps of objects: no managed fields, and in a world that is filled before it is watched, no
// environments and mounts of pods, which no part of the lab reads.
func (c *Cluster) keep() toolscache.TransformFunc {
	strip := cache.TransformStripManagedFields()
	if !c.world.cfg.Unwatched {
		return strip
	}
	return func(o any) (any, error) {
		if pod, ok := o.(*corev1.Pod); ok {
			for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				for i := range containers {
					containers[i].Env, containers[i].EnvFrom, containers[i].VolumeMounts = nil, nil, nil
				}
			}
		}
		return strip(o)
	}
}

// claimsAsOf are the NodeClaims that the API server had at a version, which it knows for some minutes.
func (c *Cluster) claimsAsOf(ctx context.Context, version string) ([]karpv1.NodeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var claims karpv1.NodeClaimList
	err := Until(ctx, func() error {
		return c.Client.List(ctx, &claims, &client.ListOptions{Raw: &metav1.ListOptions{
			ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		}})
	})
	if err != nil {
		return nil, fmt.Errorf("list the NodeClaims of version %s: %w", version, err)
	}
	return claims.Items, nil
}

// RestartClientsOnExit restarts the scheduler and the controller manager whenever they exit.
func (c *Cluster) RestartClientsOnExit() { c.controlPlane.RestartClientsOnExit() }

// KillAPIServer crashes the API server until StartAPIServer; all else keeps running.
func (c *Cluster) KillAPIServer() error { return c.controlPlane.KillAPIServer() }

func (c *Cluster) StartAPIServer(ctx context.Context) error {
	return c.controlPlane.StartAPIServer(ctx)
}

// RestartControllerManager restarts Kubernetes' own controllers, which lose their in-memory state.
func (c *Cluster) RestartControllerManager(ctx context.Context) error {
	return c.controlPlane.RestartControllerManager(ctx)
}

// Kubeconfig is the path of the administrator's kubeconfig file.
func (c *Cluster) Kubeconfig() string { return c.controlPlane.Kubeconfig() }

// RESTConfig is a client configuration of the administrator.
func (c *Cluster) RESTConfig() *rest.Config { return c.controlPlane.RESTConfig() }

// Endpoint is the URL of the API server.
func (c *Cluster) Endpoint() string { return c.controlPlane.Endpoint() }

// LogDir is where the components of the control plane log to.
func (c *Cluster) LogDir() string { return filepath.Join(c.dir, "logs") }

// stop stops the control plane.
func (c *Cluster) stop(ctx context.Context) error {
	var errs []error
	if c.controlPlane != nil {
		errs = append(errs, c.controlPlane.Stop(ctx))
	}
	if c.endpoint != nil && !c.served {
		errs = append(errs, c.endpoint.Close())
	}
	return errors.Join(errs...)
}
