package join

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Instance is an instance that has not become a node.
type Instance struct {
	ID, State string
	// Reason is EC2's code for the last change of state, such as Client.InternalError; Message is its text.
	Reason, Message string
	// Role, Subnet and Class are the scopes of findings about the instance's role, subnet and node class.
	Role, Subnet, Class string
	// NoUserData is true if its node class sets no spec.userData: then nobody can correct it.
	NoUserData bool
}

// stateReasons are the codes of EC2 for instances that stop or terminate on their own.
var stateReasons = []struct {
	code, cause string
	certainty   cloudprovider.Certainty
	// shared is true if the next instance of the class will fail in the same way.
	shared          bool
	message, remedy string
	// plainRemedy is the remedy if the node class sets no user data; empty if that makes no difference.
	plainRemedy string
}{
	{
		"Client.InternalError", VolumeKeyDenied, cloudprovider.Likely, true,
		"EC2 could not start the instance (Client.InternalError); the usual cause is a KMS key of an encrypted volume that EC2 is not allowed to use",
		"allow the role of EC2 Auto Scaling or of the controller kms:CreateGrant, kms:Decrypt, kms:GenerateDataKeyWithoutPlaintext and kms:ReEncrypt* on the key of spec.blockDeviceMappings or of the account's default encryption",
		"",
	},
	{
		"Client.VolumeLimitExceeded", VolumeLimitExceeded, cloudprovider.Certain, true,
		"the account's limit of EBS volumes or of their storage is reached",
		"raise the quota in Service Quotas, or delete volumes that are not used",
		"",
	},
	{
		"Client.InvalidSnapshot.NotFound", SnapshotNotFound, cloudprovider.Certain, true,
		"the snapshot of a volume of the image or of spec.blockDeviceMappings does not exist",
		"correct snapshotID in spec.blockDeviceMappings of the EC2NodeClass, or select another image",
		"",
	},
	{
		"Client.InstanceInitiatedShutdown", InstanceShutItselfDown, cloudprovider.Certain, true,
		"the instance shut itself down before it joined", "look for shutdown or poweroff in spec.userData of the EC2NodeClass and in the image",
		"look for shutdown or poweroff in the image: the EC2NodeClass sets no spec.userData",
	},
	{
		"Client.UserInitiatedShutdown",
		InstanceTerminatedByOthers,
		cloudprovider.Certain,
		false,
		"the instance was terminated through the API before it joined",
		"find who called TerminateInstances:  aws cloudtrail lookup-events --lookup-attributes AttributeKey=ResourceName,AttributeValue=INSTANCE",
		"",
	},
	{"Server.SpotInstance", SpotInterrupted, cloudprovider.Certain, false, "the spot instance was interrupted before it joined", "", ""},
	{
		"Server.InsufficientInstanceCapacity",
		InsufficientCapacity,
		cloudprovider.Certain,
		false,
		"EC2 had no capacity for the instance",
		"",
		"",
	},
	{"Server.InternalError", InstanceFailed, cloudprovider.Certain, false, "EC2 failed to run the instance", "", ""},
}

// CheckState explains why an instance is not running (anymore); nothing while it is.
func CheckState(i Instance) []cloudprovider.Finding {
	if i.State == "pending" || i.State == "running" || i.Reason == "" {
		return nil
	}
	for _, e := range stateReasons {
		if !strings.HasPrefix(i.Reason, e.code) {
			continue
		}
		f := cloudprovider.Finding{
			Cause: e.cause, Certainty: e.certainty, InstanceGone: e.cause != InstanceTerminatedByOthers, Message: fmt.Sprintf("instance %s: %s",
				i.ID, e.message),
			Remedy: i.remedy(e.remedy, e.plainRemedy),
		}
		if e.shared {
			f.Scope = i.Class
		}
		return []cloudprovider.Finding{f}
	}
	return []cloudprovider.Finding{{
		Cause: InstanceFailed, Certainty: cloudprovider.Likely, Message: fmt.Sprintf("instance %s is %s: %s %s", i.ID, i.State, i.Reason,
			i.Message),
	}}
}

// consolePattern matches a line of console output that explains a failure.
type consolePattern struct {
	pattern   *regexp.Regexp
	cause     string
	certainty cloudprovider.Certainty
	// scope returns the scope that affected instances share.
	scope           func(Instance) string
	message, remedy string
	// plainRemedy is the remedy if the node class sets no user data; empty if that makes no difference.
	plainRemedy string
}

// remedy is the one that fits the instance's node class, with the instance's ID.
func (i Instance) remedy(usual, plain string) string {
	if i.NoUserData && plain != "" {
		usual = plain
	}
	return strings.ReplaceAll(usual, "INSTANCE", i.ID)
}

func byRole(i Instance) string   { return i.Role }
func bySubnet(i Instance) string { return i.Subnet }
func byClass(i Instance) string  { return i.Class }
func cluster(Instance) string    { return "cluster" }

// imageRemedy is for a bootstrap that fails although the node class sets no user data of its own: what is left is the image.
const imageRemedy = "check that the image fits spec.amiFamily of the EC2NodeClass and the version of the cluster; the whole console: " +
	"aws ec2 get-console-output --latest --instance-id INSTANCE"

// consolePatterns are in the order of their priority: of several on one line the first counts.
var consolePatterns = []consolePattern{
	{
		regexp.MustCompile(`(?i)failed calling webhook|admission webhook "[^"]+" denied`), WebhookBlocksNodes, cloudprovider.Certain, cluster,
		"an admission webhook refuses the Node",
		"exclude nodes from the webhook's rules, or repair its backend: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
		"",
	},
	{
		regexp.MustCompile(
			`UnauthorizedOperation|AccessDenied(Exception)?: .* is not authorized to perform`,
		), NodeRolePolicyMissing, cloudprovider.Certain, byRole,
		"the node role lacks permissions that the boot of the instance needs",
		"attach AmazonEKSWorkerNodePolicy, AmazonEC2ContainerRegistryPullOnly and AmazonEKS_CNI_Policy to the node role",
		"",
	},
	{
		regexp.MustCompile(
			`\bUnauthorized\b|the server has asked for the client to provide credentials`,
		), NodeUnauthorized, cloudprovider.Certain, byRole,
		"the API server does not recognize the identity of the instance (Unauthorized)",
		"map the node role to the cluster: an access entry of type EC2_LINUX (EC2_WINDOWS for Windows), or an entry in mapRoles of ConfigMap kube-system/aws-auth",
		"",
	},
	{
		regexp.MustCompile(`\bis forbidden\b|not allowed to (create|modify) node`), NodeForbidden, cloudprovider.Certain, byRole,
		"the API server recognizes the instance, but not as a node (forbidden)",
		"map the node role with username " + nodeUsername + " and the groups system:bootstrappers and system:nodes",
		"",
	},
	{
		regexp.MustCompile(`x509: `), EndpointUntrusted, cloudprovider.Certain, byClass,
		"the instance does not trust the certificate of the configured endpoint",
		"check settings.clusterEndpoint and settings.clusterCABundle, and endpoint and CA in spec.userData of the EC2NodeClass, against aws eks describe-cluster",
		"check settings.clusterEndpoint and settings.clusterCABundle against aws eks describe-cluster",
	},
	{
		regexp.MustCompile(
			`no such host|server misbehaving|Temporary failure in name resolution`,
		), EndpointNameUnresolved, cloudprovider.Certain, bySubnet,
		"the instance cannot resolve the name of the API server or of an AWS endpoint",
		"turn on enableDnsSupport and enableDnsHostnames of the VPC, and let its DHCP options name AmazonProvidedDNS",
		"",
	},
	{
		regexp.MustCompile(
			`(dial tcp|:443|connect).*(i/o timeout|connection timed out|no route to host|connection refused)|Client\.Timeout exceeded|context deadline exceeded|net/http: request canceled`,
		), EndpointUnreachable, cloudprovider.Certain, bySubnet,
		"the instance cannot connect to the API server or to an AWS endpoint",
		"check routes of the subnet, egress of the node's security groups, and ingress of the cluster's security group on TCP port 443",
		"",
	},
	{
		regexp.MustCompile(
			`failed to (parse|validate) kubelet (flag|config)|unknown flag: --|unknown field "|failed to run Kubelet|"command failed" err=`,
		), KubeletRefusesToStart, cloudprovider.Certain, byClass,
		"kubelet does not start with its configuration",
		"correct spec.kubelet and spec.userData of the EC2NodeClass, and the labels and taints of the NodePool",
		"correct spec.kubelet of the EC2NodeClass, and the labels and taints of the NodePool",
	},
	{
		regexp.MustCompile(
			`bootstrap\.sh.*[Ee]xited with error|Exited with error on line \d+|nodeadm.*"level":"fatal"|nodeadm(-config|-run|-init)?\.service: (Main process exited, code=exited, status=[1-9]|Failed)|early-boot-config(\.service)?: .*(Error|exited, code=exited, status=[1-9])|(settings-committer|sundog|thar-be-settings).*(Error|Failed)`,
		), BootstrapFailed, cloudprovider.Certain, byClass,
		"the bootstrap of the instance failed", "correct spec.userData of the EC2NodeClass", imageRemedy,
	},
	{
		regexp.MustCompile(
			`Failed to run module scripts[-_]user|cloud-init.*(Error|WARNING).*part-\d+`,
		), BootstrapFailed, cloudprovider.Likely, byClass,
		"a script of the user data failed", "correct spec.userData of the EC2NodeClass", imageRemedy,
	},
	{
		regexp.MustCompile(
			`Kernel panic - not syncing`,
		), InstanceFailed, cloudprovider.Likely, byClass, "the kernel of the instance panicked", "select another image",
		"",
	},
}

// CheckConsole reads the serial console output of an instance. The last matching line counts, because earlier failures
// may have passed.
func CheckConsole(i Instance, text string) []cloudprovider.Finding {
	lines := strings.Split(text, "\n")
	for n := len(lines) - 1; n >= 0; n-- {
		for _, s := range consolePatterns {
			if s.pattern.MatchString(lines[n]) {
				return []cloudprovider.Finding{{
					Cause: s.cause, Certainty: s.certainty, Scope: s.scope(i), Remedy: i.remedy(s.remedy, s.plainRemedy),
					Message: fmt.Sprintf("instance %s: %s; its console shows: %s", i.ID, s.message, shorten(lines[n])),
				}}
			}
		}
	}
	return nil
}

// logPrefixes matches timestamps and process IDs at the start of a line, which differ each time.
var logPrefixes = regexp.MustCompile(
	`^(\[[ \d.]+\]\s*)?(\w{3} +\d+ [\d:]+ \S+ )?|[IWEF]\d{4} [\d:.]+ +\d+ |"?\d{4}-\d\d-\d\d[T ][\d:.]+(Z|[+-][\d:]+)?"?,? ?`,
)

// shorten returns the part of a line that fits into a condition, without parts that differ each time.
func shorten(line string) string {
	const limit = 200
	line = strings.TrimSpace(logPrefixes.ReplaceAllString(strings.TrimSpace(line), ""))
	if runes := []rune(line); len(runes) > limit {
		return "..." + string(runes[len(runes)-limit:])
	}
	return line
}
