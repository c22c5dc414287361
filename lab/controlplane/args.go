package controlplane

import (
	"fmt"
	"maps"
	"os"
	"slices"
)

// The components, by the names they have as programs, in log files and in messages.
// Issuer is who issues the tokens of service accounts.
const Issuer = "https://kubernetes.default.svc.cluster.local"

const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// etcdHealth is the port on which etcd serves HTTP.
const etcdHealth = "etcd-health"

const (
	tokenWebhookFile = "token-webhook.kubeconfig"
	schedulerFile    = "scheduler.yaml"
)

// The lab's clients wait for controllers all the time, and nobody shares the API server with them:
// the throttles that protect a large cluster from its own controllers would only slow it down.
const (
	clientQPS   = 1000
	clientBurst = 2000
)

func (c *Cluster) etcdArgs() []string {
	return []string{
		"--data-dir=" + c.state.data(),
		"--listen-client-url=" + c.ports[etcd].url(),
		"--listen-client-http-url=" + c.ports[etcdHealth].url(),
		"--cert-file=" + c.state.cert(etcdServer),
		"--key-file=" + c.state.key(etcdServer),
		"--trusted-ca-file=" + c.state.cert(etcdCA),
	}
}

func (c *Cluster) apiServerArgs() []string {
	s := c.state
	args := []string{
		"--etcd-servers=" + c.ports[etcd].url(),
		"--etcd-cafile=" + s.cert(etcdCA),
		"--etcd-certfile=" + s.cert(etcdClient),
		"--etcd-keyfile=" + s.key(etcdClient),
		"--service-cluster-ip-range=" + c.cfg.ServiceCIDR,
		// Otherwise it looks for an address of the computer's default route, and there need not be one.
		"--advertise-address=127.0.0.1",
		// The endpoints of the service "kubernetes" cannot be loopback addresses, and no pod of
		// the lab could follow them anyway.
		"--endpoint-reconciler-type=none",
		// Has it end open watches when it is stopped. It would wait for them otherwise.
		"--shutdown-watch-termination-grace-period=3s",
		"--allow-privileged=true",
		"--profiling=false",

		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + s.cert(clusterCA),
		"--service-account-issuer=" + Issuer,
		"--service-account-key-file=" + s.cert(serviceAccount),
		"--service-account-signing-key-file=" + s.key(serviceAccount),

		"--requestheader-client-ca-file=" + s.cert(proxyCA),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + s.cert(proxyClient),
		"--proxy-client-key-file=" + s.key(proxyClient),
		// Nothing routes cluster IPs: webhooks and aggregated APIs are reached by their endpoints.
		"--enable-aggregator-routing=true",
	}
	if c.cfg.TokenWebhook != "" {
		args = append(args,
			"--authentication-token-webhook-config-file="+s.file(tokenWebhookFile),
			"--authentication-token-webhook-version=v1",
			// A role that was just mapped may enter soon, and one that was unmapped may not for long.
			"--authentication-token-webhook-cache-ttl=5s")
	}
	for _, version := range c.cfg.RuntimeConfig {
		args = append(args, "--runtime-config="+version+"=true")
	}
	return append(args, c.servingArgs(apiServer)...)
}

func (c *Cluster) controllerManagerArgs() []string {
	s := c.state
	return append([]string{
		"--cluster-name=" + c.cfg.Name,
		"--kubeconfig=" + s.kubeconfig(controllerManager),
		fmt.Sprintf("--kube-api-qps=%d", clientQPS),
		fmt.Sprintf("--kube-api-burst=%d", clientBurst),
		"--kube-api-content-type=application/vnd.kubernetes.protobuf",
		"--leader-elect=false",
		"--profiling=false",
		// It annotates each node with how long kubelet may cache secrets, and all nodes again whenever the cluster has grown by a size
		// class: three writes for each of 1,000 nodes, of which nothing in the lab takes note.
		"--controllers=*,-ttl-controller",
		// Empty, but it has to exist: the default one would be created, outside of the state.
		"--flex-volume-plugin-dir=" + s.flexVolumes(),
		// Addresses and routes of nodes are the cloud's business.
		"--cloud-provider=external",
		"--allocate-node-cidrs=false",
		"--use-service-account-credentials=true",
		"--root-ca-file=" + s.cert(clusterCA),
		"--service-account-private-key-file=" + s.key(serviceAccount),
		"--cluster-signing-cert-file=" + s.cert(clusterCA),
		"--cluster-signing-key-file=" + s.key(clusterCA),
	}, c.servingArgs(controllerManager)...)
}

func (c *Cluster) schedulerArgs() []string {
	return append([]string{
		"--config=" + c.state.file(schedulerFile),
	}, c.servingArgs(scheduler)...)
}

// servingArgs are the flags that the Kubernetes components have in common: feature gates, and serving HTTPS.
func (c *Cluster) servingArgs(component string) []string {
	args := []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.ports[component].Port),
		"--permit-port-sharing=true", // with the socket that reserves the port
		"--tls-cert-file=" + c.state.cert(component),
		"--tls-private-key-file=" + c.state.key(component),
	}
	for _, gate := range slices.Sorted(maps.Keys(c.cfg.FeatureGates)) {
		args = append(args, fmt.Sprintf("--feature-gates=%s=%t", gate, c.cfg.FeatureGates[gate]))
	}
	return args
}

// writeSchedulerConfig writes what the scheduler no longer takes as flags.
func (c *Cluster) writeSchedulerConfig() error {
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %q
  contentType: application/vnd.kubernetes.protobuf
  qps: %d
  burst: %d
leaderElection:
  leaderElect: false
enableProfiling: false
`, c.state.kubeconfig(scheduler), clientQPS, clientBurst)
	if err := os.WriteFile(c.state.file(schedulerFile), []byte(text), 0o600); err != nil {
		return fmt.Errorf("configuration of the scheduler: %w", err)
	}
	return nil
}
