// Package node simulates what runs on EC2 instances: boot, kubelet and pods, without containers.
//
// A [Simulator] watches EC2. A running instance boots: its image reads the user data (package userdata), it signs a
// token with the credentials of its instance profile's role, and a kubelet (package kubelet) connects to the API server
// in the user data, with the CA in the user data. It has no other information: wrong user data, a role that the cluster
// does not map, or a CA of another cluster keep it from joining, as in AWS, and its console output has the reason.
//
// An instance that is no longer running stops to respond at once. The cluster handles its Node and pods (see package
// ccm). The simulator does not touch Nodes without an instance.
package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
	"github.com/dovetail-k8s/dovetail/lab/node/kubelet"
	"github.com/dovetail-k8s/dovetail/lab/node/userdata"
)

// Cloud is the EC2 API that the simulated instances need; *awsim.Sim implements it.
type Cloud interface {
	// Watch reports every change of an instance's state, beginning with all instances as they are.
	Watch(ctx context.Context) <-chan awsim.InstanceEvent
	// AppendConsole adds to the console output of an instance.
	AppendConsole(id, text string)
	// ImageContent returns the image that the disks of an image come from: itself, or what it was copied from.
	ImageContent(id string) string
	// InstanceCredentials returns what the metadata service of an instance hands out.
	InstanceCredentials(id string) (awsim.Credentials, error)
}

// Config configures a Simulator; fields without a default are required.
type Config struct {
	Cloud  Cloud
	Region string
	// STSEndpoint is the URL of STS that nodes sign their tokens for.
	STSEndpoint string
	// Boot is the time from running to kubelet's first call; default 1500 ms.
	Boot time.Duration
	// Kubelet is the timing of the nodes.
	Kubelet kubelet.Timing
	// Stages are what pods go through; default kubelet.DefaultStages.
	Stages []*v1alpha1.Stage
	Now    func() time.Time // for signatures; default time.Now
	Log    *slog.Logger     // default discards
}

// Simulator boots a node for each running instance, for any number of clusters.
type Simulator struct {
	cfg    Config
	stages *kubelet.Stages
	// images are the published images by ID.
	images map[string]userdata.Image

	mu        sync.Mutex
	podBlocks map[int]bool    // pod address ranges in use, by number
	broken    map[string]bool // images that do not boot, by ID
	// lifetimes are how long kubelet works on images that fail later, by ID.
	lifetimes map[string]time.Duration
	// planted are the faults of images, by image and NodePool.
	planted map[faultKey]plantedFault
	// draDrivers are those that instances run, draDevices what they publish.
	draDrivers []string
	noPlugins  bool // instances run no device plugins
	draDevices offline.Devices
	faults     faults
	reboots    map[string]int // of running instances, by ID
	// joined are the instances that run something else than a boot, by ID; see RunJoined.
	joined map[string]func(context.Context)
	// leases renew the leases of nodes together, by the endpoint of their cluster.
	leases map[string]kubelet.Leases
	// networkBlock is closed when network plugins come up again; nil while they do.
	networkBlock chan struct{}
}

// New returns a simulator without instances. It makes no calls.
func New(cfg Config) (*Simulator, error) {
	if cfg.Boot == 0 {
		cfg.Boot = 1500 * time.Millisecond
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Stages == nil {
		var err error
		if cfg.Stages, err = kubelet.DefaultStages(); err != nil {
			return nil, fmt.Errorf("default stages: %w", err)
		}
	}
	stages, err := kubelet.NewStages(cfg.Stages)
	if err != nil {
		return nil, err
	}
	f := &Simulator{
		cfg: cfg, stages: stages, images: map[string]userdata.Image{}, podBlocks: map[int]bool{}, broken: map[string]bool{},
		lifetimes: map[string]time.Duration{}, planted: map[faultKey]plantedFault{},
		faults: newFaults(), reboots: map[string]int{}, joined: map[string]func(context.Context){}, leases: map[string]kubelet.Leases{},
	}
	for _, i := range image.List(cfg.Region) {
		f.images[i.ID] = userdata.ParseImage(i.Name)
	}
	return f, nil
}

// BreakImage lets instances with this image panic when they boot from now on.
func (f *Simulator) BreakImage(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken[id] = true
}

// FailImageAfter lets kubelet hang on instances that boot with this image from now on, so long after it started: their nodes join, become
// Ready, and fail.
func (f *Simulator) FailImageAfter(id string, after time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lifetimes[id] = after
}

// lifetime is how long kubelet works on instances with an image; zero for as long as they run.
func (f *Simulator) lifetime(image string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lifetimes[image]
}

func (f *Simulator) isBroken(image string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken[image]
}

// RenewTogether has the leases of nodes that boot from now on renewed together, in the cluster with this endpoint. Otherwise each kubelet
// renews its own by requests.
func (f *Simulator) RenewTogether(endpoint string, leases kubelet.Leases) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leases[endpoint] = leases
}

// leasesOf is what renews leases in the cluster with this endpoint; nil for kubelets.
func (f *Simulator) leasesOf(endpoint string) kubelet.Leases {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leases[endpoint]
}

// BlockNetworkPlugin keeps the network plugin of instances that boot from now on from starting: they register, but are
// not Ready.
func (f *Simulator) BlockNetworkPlugin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.networkBlock == nil {
		f.networkBlock = make(chan struct{})
	}
}

// UnblockNetworkPlugin lets the network plugins of all instances start.
func (f *Simulator) UnblockNetworkPlugin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.networkBlock != nil {
		close(f.networkBlock)
		f.networkBlock = nil
	}
}

func (f *Simulator) networkBlocked() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.networkBlock
}

// RunJoined has an instance that does not run yet skip its boot: it joined a cluster as written objects. run does what
// its kubelet does, until the instance stops or reboots. From then on it is an instance like any other.
func (f *Simulator) RunJoined(id string, run func(ctx context.Context)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.joined[id] = run
}

// takeJoined returns what an instance runs instead of a boot, and nil from then on.
func (f *Simulator) takeJoined(id string) func(context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run := f.joined[id]
	delete(f.joined, id)
	return run
}

// Run boots and stops instances until ctx is done, and returns when all are stopped.
func (f *Simulator) Run(ctx context.Context) error {
	var hosts sync.WaitGroup
	defer hosts.Wait()
	running := map[string]bootedHost{}
	defer func() {
		for _, h := range running {
			h.stop()
		}
	}()
	for event := range f.cfg.Cloud.Watch(ctx) {
		i := event.Instance
		h, up := running[i.ID]
		if up && (i.State != ec2.Running || i.Reboots != h.reboots) {
			h.stop()
			<-h.stopped
			delete(running, i.ID)
			up = false
		}
		if up || i.State != ec2.Running {
			continue
		}
		hostCtx, cancel := context.WithCancel(ctx)
		h = bootedHost{stop: cancel, stopped: make(chan struct{}), reboots: i.Reboots}
		running[i.ID] = h
		f.noteBoot(i)
		run := f.takeJoined(i.ID)
		if run == nil {
			run = func(ctx context.Context) { f.boot(ctx, i) }
		}
		hosts.Go(func() {
			defer close(h.stopped)
			run(hostCtx)
		})
	}
	return nil
}

func (f *Simulator) noteBoot(i awsim.Instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reboots[i.ID] = i.Reboots
}

// bootedHost is an instance that runs, since so many reboots.
type bootedHost struct {
	stop    context.CancelFunc
	stopped chan struct{}
	reboots int
}

// allocatePodRange allocates an instance's pod addresses from the range that EKS documents for secondary
// CIDRs (100.64.0.0/10, enough for 4096 instances). The returned function releases them.
func (f *Simulator) allocatePodRange() (netip.Prefix, func()) {
	const bits = 22 // the largest instances run some 700 pods
	f.mu.Lock()
	defer f.mu.Unlock()
	block := 0
	for f.podBlocks[block] {
		block++
	}
	f.podBlocks[block] = true
	first := netip.AddrFrom4([4]byte{100, 64 + byte(block>>6), byte(block << 2), 0})
	return netip.PrefixFrom(first, bits), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.podBlocks, block)
	}
}
