# A VPC with private subnets in three zones for nodes, and one NAT gateway. Nothing of it is created with var.subnet_ids.

locals {
  create_vpc = length(var.subnet_ids) == 0
  zones      = slice(data.aws_availability_zones.this.names, 0, 3)
  subnet_ids = local.create_vpc ? aws_subnet.private[*].id : var.subnet_ids
}

data "aws_availability_zones" "this" {
  state = "available"
  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

resource "aws_vpc" "this" {
  count                = local.create_vpc ? 1 : 0
  cidr_block           = "10.0.0.0/16"
  enable_dns_hostnames = true
  tags                 = { Name = var.cluster_name }
}

resource "aws_subnet" "private" {
  count             = local.create_vpc ? length(local.zones) : 0
  vpc_id            = aws_vpc.this[0].id
  availability_zone = local.zones[count.index]
  cidr_block        = cidrsubnet(aws_vpc.this[0].cidr_block, 2, count.index)
  tags = {
    Name                              = "${var.cluster_name}-private-${local.zones[count.index]}"
    "kubernetes.io/role/internal-elb" = "1"
  }
}

resource "aws_subnet" "public" {
  count                   = local.create_vpc ? 1 : 0
  vpc_id                  = aws_vpc.this[0].id
  availability_zone       = local.zones[0]
  cidr_block              = cidrsubnet(aws_vpc.this[0].cidr_block, 8, 255)
  map_public_ip_on_launch = true
  tags                    = { Name = "${var.cluster_name}-public" }
}

resource "aws_internet_gateway" "this" {
  count  = local.create_vpc ? 1 : 0
  vpc_id = aws_vpc.this[0].id
  tags   = { Name = var.cluster_name }
}

resource "aws_eip" "nat" {
  count      = local.create_vpc ? 1 : 0
  domain     = "vpc"
  depends_on = [aws_internet_gateway.this]
}

resource "aws_nat_gateway" "this" {
  count         = local.create_vpc ? 1 : 0
  allocation_id = aws_eip.nat[0].id
  subnet_id     = aws_subnet.public[0].id
  tags          = { Name = var.cluster_name }
}

resource "aws_route_table" "public" {
  count  = local.create_vpc ? 1 : 0
  vpc_id = aws_vpc.this[0].id
  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.this[0].id
  }
}

resource "aws_route_table" "private" {
  count  = local.create_vpc ? 1 : 0
  vpc_id = aws_vpc.this[0].id
  route {
    cidr_block     = "0.0.0.0/0"
    nat_gateway_id = aws_nat_gateway.this[0].id
  }
}

resource "aws_route_table_association" "public" {
  count          = local.create_vpc ? 1 : 0
  subnet_id      = aws_subnet.public[0].id
  route_table_id = aws_route_table.public[0].id
}

resource "aws_route_table_association" "private" {
  count          = length(aws_subnet.private)
  subnet_id      = aws_subnet.private[count.index].id
  route_table_id = aws_route_table.private[0].id
}

# The node class finds subnets and security group by this tag.
resource "aws_ec2_tag" "subnet_discovery" {
  count       = local.create_vpc ? length(local.zones) : length(var.subnet_ids)
  resource_id = local.subnet_ids[count.index]
  key         = "karpenter.sh/discovery"
  value       = var.cluster_name
}

resource "aws_ec2_tag" "security_group_discovery" {
  resource_id = aws_eks_cluster.this.vpc_config[0].cluster_security_group_id
  key         = "karpenter.sh/discovery"
  value       = var.cluster_name
}
