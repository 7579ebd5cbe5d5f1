"""python -m webshop.gateway"""

from webshop.gateway.service import run

run()
