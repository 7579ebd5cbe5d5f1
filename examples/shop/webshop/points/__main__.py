"""python -m webshop.points"""

from webshop.points.service import service

service.run()
