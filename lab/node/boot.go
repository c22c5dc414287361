package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/node/authn"
	"github.com/dovetail-k8s/dovetail/lab/node/kubelet"
	"github.com/dovetail-k8s/dovetail/lab/node/userdata"
)

// boot runs an instance from power on until ctx is done.
func (f *Simulator) boot(ctx context.Context, i awsim.Instance) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(f.cfg.Boot):
	}
	content := f.cfg.Cloud.ImageContent(i.ImageID)
	m := host{simulator: f, instance: i, image: f.images[content]}
	if f.isBroken(i.ImageID) || f.isBroken(content) {
		f.cfg.Cloud.AppendConsole(i.ID, "[    1.734219] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n")
		return
	}
	fault := f.plantedFault(i)
	m.skew = fault.skew()
	config, err := m.bootstrap()
	if err == nil {
		err = fault.start()
	}
	if err != nil {
		m.fail(err)
		f.cfg.Log.Info("instance does not join", "instance", i.ID, "reason", err.Error())
		return
	}
	pods, release := f.allocatePodRange()
	defer release()
	config.PodIPs = pods
	fault.configure(&config)
	var agent sync.WaitGroup
	defer agent.Wait()
	agent.Go(func() { m.monitor(ctx, config.Client) })
	var drivers sync.WaitGroup
	drivers.Go(func() { m.runDRADrivers(ctx, config) })
	m.runKubelet(ctx, config, fault)
	drivers.Wait()
}

// runKubelet runs kubelet until ctx is done, or for as long as the image lets it; the instance goes on running.
func (m host) runKubelet(ctx context.Context, config kubelet.Config, fault plantedFault) {
	after := m.simulator.lifetime(m.instance.ImageID)
	switch fault.ImageFault {
	case PanicLoop:
		m.panicOverAndOver(ctx, config, fault.after)
		return
	case NotReadyLater:
		after = fault.after
	}
	if after == 0 {
		kubelet.New(config).Run(ctx)
		return
	}
	works, stop := context.WithTimeout(ctx, after)
	defer stop()
	kubelet.New(config).Run(works)
	if ctx.Err() == nil {
		m.simulator.cfg.Cloud.AppendConsole(m.instance.ID, fmt.Sprintf("[%12.6f] INFO: task kubelet blocked for more than 120 seconds.\n", after.Seconds()))
		<-ctx.Done()
	}
}

// host is an instance as the software on it sees it.
type host struct {
	simulator *Simulator
	instance  awsim.Instance
	image     userdata.Image
	// skew is what its clock shows less than the time.
	skew time.Duration
}

// now is what the clock of the instance shows.
func (m host) now() time.Time { return m.simulator.cfg.Now().Add(-m.skew) }

// bootstrap reads the user data and configures kubelet. Its error is for the console.
func (m host) bootstrap() (kubelet.Config, error) {
	if m.image.Family == userdata.Unknown {
		return kubelet.Config{}, fmt.Errorf("image %s is no EKS optimized image, and no copy of one: there is no kubelet on it", m.instance.ImageID)
	}
	m.console(
		"systemd",
		fmt.Sprintf("Started EKS node bootstrap (%s %s, Kubernetes %s).", m.image.Family, m.image.Release, m.image.Kubernetes),
	)
	if len(m.instance.UserData) == 0 {
		return kubelet.Config{}, errors.New("the instance has no user data")
	}
	cluster, err := userdata.Decode(m.image.Family, m.instance.UserData)
	if err != nil {
		return kubelet.Config{}, err
	}
	if err := userdata.ValidateLabels(cluster.Labels); err != nil {
		return kubelet.Config{}, kubeletExit{fmt.Errorf("failed to validate kubelet flags: %w", err)}
	}
	settings := cluster.WithDefaults(userdata.InstanceLimits{
		VCPUs: m.instance.VCPUs, MaxENIs: m.instance.MaxENIs, IPv4PerENI: m.instance.IPv4PerENI,
	})
	if settings.RegisterNode != nil && !*settings.RegisterNode {
		return kubelet.Config{}, kubeletExit{errors.New("standalone mode: the node is not registered (registerNode: false)")}
	}
	ip, err := netip.ParseAddr(m.instance.PrivateIP)
	if err != nil {
		return kubelet.Config{}, fmt.Errorf("private address of the instance: %w", err)
	}
	client, err := m.client(cluster)
	if err != nil {
		return kubelet.Config{}, kubeletExit{err}
	}
	return m.kubelet(cluster, settings, client, ip), nil
}

// kubeletExit is an error with which kubelet itself does not start.
type kubeletExit struct{ error }

// fail writes to the console what each image does when it cannot join a cluster.
func (m host) fail(err error) {
	const status = ".service: Main process exited, code=exited, status=1/FAILURE"
	var exit kubeletExit
	switch {
	case errors.As(err, &exit):
		m.console("kubelet", m.klog('E', fmt.Sprintf(`"command failed" err="%s"`, err)))
		m.console("systemd", "kubelet"+status)
	case m.image.Family == userdata.AL2023:
		m.console("nodeadm", fmt.Sprintf(`{"level":"fatal","msg":"Command failed","error":%q}`, err.Error()))
		m.console("systemd", "nodeadm-config"+status)
	case m.image.Family == userdata.Windows:
		m.console("EC2Launch", "Error: "+err.Error())
	case m.image.Family == userdata.Bottlerocket:
		m.console("early-boot-config", "Error: "+err.Error())
		m.console("systemd", "early-boot-config"+status)
	default:
		m.console("cloud-init", "Error: "+err.Error())
		m.console("cloud-init", "Failed to run module scripts-user (scripts in /var/lib/cloud/instance/scripts)")
	}
}

// kubelet returns the kubelet configuration of an instance with valid user data.
func (m host) kubelet(
	cluster userdata.Config,
	settings kubeletconfig.KubeletConfiguration,
	client kubernetes.Interface,
	ip netip.Addr,
) kubelet.Config {
	capacity := m.capacity(cluster, settings)
	return kubelet.Config{
		Client:      client,
		Name:        m.instance.PrivateDNSName,
		ProviderID:  "aws:///" + m.instance.Zone + "/" + m.instance.ID,
		IP:          ip,
		Labels:      m.labels(cluster),
		Taints:      settings.RegisterWithTaints,
		Capacity:    capacity,
		Allocatable: allocatable(capacity, settings),
		Devices:     m.devices(),
		Info:        m.info(),
		Stages:      m.simulator.stages,
		Timing:      m.simulator.cfg.Kubelet,
		Network:     m.simulator.networkBlocked(),
		Leases:      m.simulator.leasesOf(cluster.Endpoint),
		Log:         func(severity byte, text string) { m.console("kubelet", m.klog(severity, text)) },
	}
}

// client talks to the API server of the user data as the role of the instance.
func (m host) client(cluster userdata.Config) (kubernetes.Interface, error) {
	credentials := &tokenTransport{host: m, signer: authn.Signer{
		Endpoint: m.simulator.cfg.STSEndpoint, Region: m.simulator.cfg.Region, Cluster: cluster.ClusterName, Now: m.now,
	}}
	return kubernetes.NewForConfig(&rest.Config{
		Host:            cluster.Endpoint,
		TLSClientConfig: rest.TLSClientConfig{CAData: cluster.CA},
		WrapTransport: func(next http.RoundTripper) http.RoundTripper {
			credentials.next = next
			return credentials
		},
		ContentConfig: rest.ContentConfig{
			ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
		UserAgent: fmt.Sprintf("kubelet/v%s.0 (%s/%s)", m.image.Kubernetes, m.info().OperatingSystem, m.goArch()),
		QPS:       50, Burst: 100, // kubelet's defaults
		WarningHandler: rest.NoWarnings{},
	})
}

// tokenTransport signs the requests of a kubelet with a token of its instance's role, as kubelet's credential
// plugin does: a token is used for most of its life, and dropped when the API server rejects it.
type tokenTransport struct {
	host   host
	signer authn.Signer
	next   http.RoundTripper

	mu       sync.Mutex
	token    string
	signedAt time.Time
}

// RoundTrip implements http.RoundTripper.
func (b *tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.current(r.Context())
	if err != nil {
		return nil, fmt.Errorf("getting credentials: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := b.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		b.invalidate(token)
	}
	return resp, err
}

func (b *tokenTransport) current(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.signer.Now()
	if b.token != "" && now.Sub(b.signedAt) < authn.TokenLife-time.Minute {
		return b.token, nil
	}
	c, err := b.host.simulator.cfg.Cloud.InstanceCredentials(b.host.instance.ID)
	if err != nil {
		return "", err
	}
	token, err := b.signer.Token(ctx, aws.Credentials{
		AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken,
	})
	if err != nil {
		return "", err
	}
	b.token, b.signedAt = token, now
	return token, nil
}

func (b *tokenTransport) invalidate(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.token == token {
		b.token = ""
	}
}

func (m host) goArch() string {
	if m.instance.Architecture == "arm64" {
		return "arm64"
	}
	return "amd64"
}

// bootSum identifies a boot of an instance: each has another ID.
func bootSum(id string, reboots int) []byte {
	text := id
	if reboots > 0 {
		text += fmt.Sprintf("/%d", reboots)
	}
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// info is what kubelet finds out about the system it runs on.
func (m host) info() corev1.NodeSystemInfo {
	sum := sha256.Sum256([]byte(m.instance.ID))
	id := hex.EncodeToString(sum[:])
	boot := hex.EncodeToString(bootSum(m.instance.ID, m.instance.Reboots))
	out := corev1.NodeSystemInfo{
		MachineID:               "ec2" + id[3:32],
		SystemUUID:              fmt.Sprintf("ec2%s-%s-%s-%s-%s", id[3:8], id[8:12], id[12:16], id[16:20], id[20:32]),
		BootID:                  fmt.Sprintf("%s-%s-%s-%s-%s", boot[32:40], boot[40:44], boot[44:48], boot[48:52], boot[52:64]),
		ContainerRuntimeVersion: "containerd://2.1.5",
		KubeletVersion:          "v" + m.image.Kubernetes + ".0-eks-3abbec1",
		OperatingSystem:         "linux",
		Architecture:            m.goArch(),
	}
	switch m.image.Family {
	case userdata.AL2:
		out.OSImage, out.KernelVersion = "Amazon Linux 2", "5.10.245-245.983.amzn2."+m.instance.Architecture
	case userdata.Windows:
		out.OperatingSystem, out.OSImage, out.KernelVersion = "windows", "Windows Server "+m.image.Server+" Datacenter", m.windowsBuild()
	case userdata.Bottlerocket:
		out.OSImage = fmt.Sprintf("Bottlerocket OS %s (aws-k8s-%s)", strings.TrimPrefix(m.image.Release, "v"), m.image.Kubernetes)
		out.KernelVersion = "6.12.53"
	default:
		out.OSImage = "Amazon Linux 2023." + strings.TrimPrefix(m.image.Release, "v")
		out.KernelVersion = "6.12.53-69.119.amzn2023." + m.instance.Architecture
	}
	return out
}

// windowsBuild is the build of the instance's Windows Server, empty on other systems.
func (m host) windowsBuild() string {
	return map[string]string{"2019": "10.0.17763", "2022": "10.0.20348", "2025": "10.0.26100"}[m.image.Server]
}

// labels are those of the user data, and what kubelet adds on Windows.
func (m host) labels(cluster userdata.Config) map[string]string {
	if m.image.Family != userdata.Windows {
		return cluster.Labels
	}
	out := maps.Clone(cluster.Labels)
	if out == nil {
		out = map[string]string{}
	}
	out[corev1.LabelWindowsBuild] = m.windowsBuild()
	return out
}

// console writes a line of the journal, which these images copy to the serial console.
func (m host) console(unit, text string) {
	host, _, _ := strings.Cut(m.instance.PrivateDNSName, ".")
	m.simulator.cfg.Cloud.AppendConsole(
		m.instance.ID,
		fmt.Sprintf("%s %s %s: %s\n", m.simulator.cfg.Now().UTC().Format(time.Stamp), host, unit, text),
	)
}

// klog gives a message the header of Kubernetes' log lines.
func (m host) klog(severity byte, text string) string {
	return fmt.Sprintf("%c%s %7d kubelet.go] %s", severity, m.simulator.cfg.Now().UTC().Format("0102 15:04:05.000000"), 1, text)
}
